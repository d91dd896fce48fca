"""What a user may choose of a tuning run, and what a run is given and gives."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal, TypedDict

from asmtune.base.errors import InputError
from asmtune.core.problem import Problem
from asmtune.core.records.tuned import TuneKey, TuneRecord
from asmtune.measure.bench.hooks import PostHook, PreHook, TunerHooks
from asmtune.measure.checks.roles import CheckOptions
from asmtune.tuning.objective import Costs, Objective
from asmtune.tuning.presets import Effort, effort_of
from asmtune.tuning.triton_options import checks_of, do_bench_of, hooks_of, policy_of

if TYPE_CHECKING:
    from asmtune.measure.bench.hooks import DoBench

OnBusy = Literal["wait", "heuristic"]


class Choices(TypedDict, total=False):
    """Keywords of `tune` and of `asm_autotune`; `TuneOptions` says what each is for.

    Those from `pre_hook` on are `triton.autotune`'s, with its meaning where it has one here:

    pre_hook: called as `pre_hook(kwargs)` before each launch while tuning, after that of the
        config, and once as `pre_hook(kwargs, reset_only=True)` with the winner's values when
        tuning is done. `kwargs` are all arguments by name and the config's values. It takes the
        place of `restore_value` and `reset_to_zero`. Its time does not count.
    post_hook: called as `post_hook(kwargs, exception=None)` after each launch while tuning, or
        with what the launch raised. It takes the place of `restore_value`.
    do_bench: `do_bench(kernel_call, quantiles=(0.5, 0.2, 0.8))` times in the place of our clock:
        milliseconds, `[median, p20, p80]` or one number, of which the least wins. Calling
        `kernel_call` launches once, with hooks and with what puts back arguments that the kernel
        updates; outputs are checked before it is asked. As in Triton the three below, where
        they are given, leave it unused.
    warmup: milliseconds for which each config is launched before its first sample, in every
        trial and final that it is in; one launch by default.
    rep: milliseconds of its own launches for which a config is timed at most in a trial, 30 by
        default, and five times as long in the finals. The clock stops earlier where a config is
        clearly slower or its time is steady: as many samples as Triton takes are not needed.
    use_cuda_graph: whether launches are timed in a CUDA graph, 10 together, hooks included; a
        config that cannot be captured fails.
    cache_results: accepted, and without effect: results are always kept.
    """

    effort: str | Effort
    isolate: bool
    devices: tuple[int, ...] | None
    objective: str | Objective
    seed: int
    tiles: bool
    force: bool
    on_busy: OnBusy
    check: bool
    reference: Callable[[Mapping[str, Any]], Any] | None
    restore_value: tuple[str, ...]
    reset_to_zero: tuple[str, ...]
    pre_hook: PreHook | None
    post_hook: PostHook | None
    do_bench: DoBench | None
    warmup: float | None
    rep: float | None
    use_cuda_graph: bool
    cache_results: bool


@dataclass(frozen=True, kw_only=True)
class TuneOptions:
    """How to tune.

    Attributes:
        effort: how hard to search.
        isolate: whether configs run in a process of their own, so that one that faults or
            hangs costs itself alone. Costs some seconds to start, and a copy of the arguments.
        devices: indices of the GPUs to time on, one process each (which isolates as well);
            None for the current one.
        objective: what "best" means.
        seed: of all that is drawn; two runs of one seed differ by their timings alone.
        tiles: whether to search the tile axes of a persistent kernel as well, which otherwise
            stay at the values of the space's default.
        force: whether to tune although the store knows the key.
        on_busy: while another process tunes the same key: "wait" for it, or go on with the
            "heuristic".
        checks: how outputs are checked and arguments kept whole.
        hooks: called around every launch; with `isolate` or `devices` in the process that times,
            to which they are sent, on its copies of the arguments.
        do_bench: the user's function that times, in the place of our clock; sent likewise.
    """

    effort: Effort
    isolate: bool = False
    devices: tuple[int, ...] | None = None
    objective: Objective = field(default_factory=lambda: Objective({"time": 1.0}))
    seed: int = 0
    tiles: bool = False
    force: bool = False
    on_busy: OnBusy = "wait"
    checks: CheckOptions = field(default_factory=CheckOptions)
    hooks: TunerHooks = field(default_factory=TunerHooks)
    do_bench: DoBench | None = None

    @property
    def clock(self) -> str:
        """Whose clock times, by name; empty for ours. Times of two clocks do not compare."""
        if self.do_bench is None:
            return ""
        module = getattr(self.do_bench, "__module__", "")
        name = getattr(self.do_bench, "__qualname__", type(self.do_bench).__qualname__)
        return f"{module}.{name}"

    @classmethod
    def of(cls, choices: Choices) -> TuneOptions:
        """Options from a user's keywords.

        Raises:
            InputError: no such effort or objective, or a choice is none of its forms.
        """
        objective = choices.get("objective", "time")
        on_busy = choices.get("on_busy", "wait")
        if on_busy not in ("wait", "heuristic"):
            raise InputError(f"on_busy={on_busy!r}: give 'wait' or 'heuristic'")
        effort = effort_of(choices.get("effort", "balanced"))
        return cls(
            effort=replace(effort, policy=policy_of(effort.policy, choices)),
            isolate=choices.get("isolate", False),
            devices=choices.get("devices"),
            objective=Objective.parse(objective) if isinstance(objective, str) else objective,
            seed=choices.get("seed", 0),
            tiles=choices.get("tiles", False),
            force=choices.get("force", False),
            on_busy=on_busy,
            checks=checks_of(choices),
            hooks=hooks_of(choices),
            do_bench=do_bench_of(choices),
        )


@dataclass(frozen=True)
class TuneJob:
    """One problem to tune.

    Attributes:
        problem: the launch.
        key: what its config is kept by.
        reference: the kernel module's name or file, for the trace; None where there is none.
    """

    problem: Problem
    key: TuneKey
    reference: str | None = None


Result = Literal["tuned", "known", "busy", "failed"]


@dataclass(frozen=True)
class TuneResult:
    """What became of a job.

    Attributes:
        job: the job.
        outcome: "tuned" now, "known" before, "busy" (another process tunes it), or "failed".
        record: of what was tuned or known.
        run: id of the trace, where there is one.
        seconds: wall clock.
        default_us: the default config's time, where it was measured.
        compiled, timed: configs.
        costs: of the finalists, where more than time counts.
        error: why it failed, in one line.
    """

    job: TuneJob
    outcome: Result
    record: TuneRecord | None = None
    run: str | None = None
    seconds: float = 0.0
    default_us: float | None = None
    compiled: int = 0
    timed: int = 0
    costs: tuple[Costs, ...] = ()
    error: str = ""
