"""What a user may choose of a tuning run, and what a run is given and gives."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypedDict

from asmtune.errors import InputError
from asmtune.measure import CheckOptions
from asmtune.problem import Problem
from asmtune.records import TuneKey, TuneRecord
from asmtune.tuning.objective import Costs, Objective
from asmtune.tuning.presets import Effort, effort_of

OnBusy = Literal["wait", "heuristic"]


class Choices(TypedDict, total=False):
    """Keywords of `tune` and of `asm_autotune`; `TuneOptions` says what each is for."""

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

    @classmethod
    def of(cls, choices: Choices) -> TuneOptions:
        """Options from a user's keywords.

        Raises:
            InputError: no such effort or objective, or `on_busy` is neither of its values.
        """
        objective = choices.get("objective", "time")
        on_busy = choices.get("on_busy", "wait")
        if on_busy not in ("wait", "heuristic"):
            raise InputError(f"on_busy={on_busy!r}: give 'wait' or 'heuristic'")
        checks = CheckOptions(
            check=choices.get("check", True),
            reference=choices.get("reference"),
            restore_value=tuple(choices.get("restore_value") or ()),
            reset_to_zero=tuple(choices.get("reset_to_zero") or ()),
        )
        return cls(
            effort=effort_of(choices.get("effort", "balanced")),
            isolate=choices.get("isolate", False),
            devices=choices.get("devices"),
            objective=Objective.parse(objective) if isinstance(objective, str) else objective,
            seed=choices.get("seed", 0),
            tiles=choices.get("tiles", False),
            force=choices.get("force", False),
            on_busy=on_busy,
            checks=checks,
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
