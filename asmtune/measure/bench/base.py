"""The interface of a bench, what it is given, and the user's functions that it calls.

The `pre_hook` of a `Config` is another one than the tuner's: it belongs to that config, and is
called before.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final, Protocol

from asmtune.compile.lower import Lowering
from asmtune.core.alternatives import Alternatives
from asmtune.core.config import Config
from asmtune.core.failures import required
from asmtune.core.records.artifacts import Artifact
from asmtune.core.records.tuned import Outcome
from asmtune.ir.ttir.slots import ConfigSlots
from asmtune.measure.checks.effects import Effects
from asmtune.measure.checks.roles import CheckOptions
from asmtune.measure.timing.policy import TimingPolicy
from asmtune.triton_api.user_state import within

if TYPE_CHECKING:
    from asmtune.compile.load import LoadedLaunch


PreHook = Callable[..., Any]
"""Called as `pre_hook(kwargs)` before a launch, and once as `pre_hook(kwargs, reset_only=True)`."""

PostHook = Callable[..., Any]
"""Called as `post_hook(kwargs, exception=None)` after a launch, or with what it raised."""

DoBench = Callable[..., Any]
"""Called as `do_bench(kernel_call, quantiles=(0.5, 0.2, 0.8))`; gives milliseconds: the median,
p20 and p80, or the median alone."""

QUANTILES: Final = (0.5, 0.2, 0.8)


@dataclass(frozen=True)
class TunerHooks:
    """Holds the tuner's hooks, called with all arguments by name and the config's values.

    Attributes:
        pre: called before the launch; not timed.
        post: called after it, while the GPU may still run it; not timed.
    """

    pre: PreHook | None = None
    post: PostHook | None = None

    def reset(self, values: dict[str, Any]) -> None:
        """Call `pre` for the last time, after tuning; nothing is launched after it.

        Raises:
            ProblemError: the hook raised; says what.
        """
        pre = self.pre
        if pre is not None:
            required("pre_hook(reset_only=True)", lambda: within(pre)(values, reset_only=True))

    def around(self, launch: LoadedLaunch, values: dict[str, Any]) -> LoadedLaunch:
        """Wrap a launch, whose `prepare` runs the config's own hook, with the tuner's.

        These get `values`, the same mapping each time.
        """
        if self.pre is None and self.post is None:
            return launch
        pre, post = self.pre, self.post

        def prepare() -> None:
            launch.prepare()
            if pre is not None:
                within(pre)(values)

        def run() -> None:
            try:
                launch.run()
            except Exception as error:
                if post is not None:
                    within(post)(values, exception=error)
                raise

        def finish() -> None:
            launch.finish()
            if post is not None:
                within(post)(values, exception=None)

        return replace(launch, prepare=prepare, run=run, finish=finish)


@dataclass(frozen=True)
class TimingCandidate:
    """Pairs a config with its artifact, to be timed.

    Attributes:
        config, artifact: the two.
        slots: where its programs write, by its IR.
    """

    config: Config
    artifact: Artifact
    slots: ConfigSlots = field(default_factory=ConfigSlots)


@dataclass(frozen=True, kw_only=True)
class TimingSetup:
    """Says how configs are checked and timed, in any process.

    Attributes:
        effects: what the kernel does to its arguments.
        checks: how outputs are checked.
        policy: how to race; unused with `do_bench`.
        seed: seed of the order of launches.
        do_bench: the user's function that times, in place of races.
        hooks: called around every launch.
        alternatives: the user's functions that candidates' configs name.
    """

    effects: Effects
    checks: CheckOptions
    policy: TimingPolicy
    seed: int = 0
    do_bench: DoBench | None = None
    hooks: TunerHooks = field(default_factory=TunerHooks)
    alternatives: Alternatives = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class BenchSetup(TimingSetup):
    """Says what is timed, and how.

    Attributes:
        lowering: the problem's, for the GPU that times.
        run_timeout_s: seconds that one config may take for one step (loading, one launch,
            comparing its output) before its process is ended; used in child processes only.
    """

    lowering: Lowering
    run_timeout_s: float = 10.0


class Bench(Protocol):
    """Times configs of one problem; a config that cannot run costs itself alone.

    Each method raises a `MeasureError` when nothing can be timed any more, and an `InputError` when
    a function of the user's cannot be sent to the process that times.

    Attributes:
        device: name of the GPU, as its driver gives it.
        notes: remarks on how outputs were checked and timings taken.
    """

    @property
    def device(self) -> str: ...  # noqa: D102

    @property
    def notes(self) -> tuple[str, ...]: ...  # noqa: D102

    def begin(self, default: TimingCandidate) -> Outcome:
        """Time the default config; its output is what all other configs must compute.

        Has to be called first. If the config cannot run, the first config of a trial that runs
        takes its place.
        """

    def trial(self, candidates: Sequence[TimingCandidate]) -> list[Outcome]:
        """Check each candidate's output, race those that pass, and return outcomes in order.

        A config that is clearly slower than the best so far is not timed to the end.
        """

    def final(self, candidates: Sequence[TimingCandidate]) -> list[Outcome]:
        """Time all candidates again, interleaved, and return outcomes in order."""

    def close(self) -> None:
        """Restore the contents of every argument, and free all memory and processes."""
