"""What a tuned config is kept by, and what must still hold for it to be used."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

from asmtune.compile.source import source_digest
from asmtune.config import Config
from asmtune.fingerprint import canonical, digest, versions
from asmtune.measure import driver_version
from asmtune.problem import Problem, jit_function
from asmtune.records import Provenance, TuneKey
from asmtune.space import Space
from asmtune.tuning.objective import Objective


def key_of(problem: Problem, device: str) -> TuneKey:
    """The key of a problem on a device: its kernel's full name, shape and dtypes."""
    function = jit_function(problem.kernel)
    name = f"{function.__module__}.{function.__qualname__}"
    return TuneKey(name, dict(problem.shape), problem.dtypes, device)


def provenance(
    problem: Problem, space: Space, *, tiles: bool = False, objective: Objective | None = None
) -> Provenance:
    """What a config tuned here and now depends on.

    Args:
        problem: the launch.
        space: the configs.
        tiles: whether a persistent kernel's tile axes are searched as well.
        objective: what "best" means; time where it is None.
    """
    aims: tuple[str, ...] = ("tiles",) if tiles else ()
    if objective is not None and not objective.only_time:
        aims += (str(objective),)
    made_with = versions()
    return Provenance(
        source=source_digest(problem.kernel),
        space=space_digest(list(space.configs(**problem.shape)), *aims),
        triton=made_with["triton"],
        torch=made_with["torch"],
        asmtune=made_with["asmtune"],
        driver=driver_version(),
        date=datetime.now(UTC).isoformat(timespec="seconds"),
    )


def space_digest(configs: Sequence[Config], *aims: str) -> str:
    """Identity of what is searched: a set of configs, whatever their order, how, and what for."""
    listed = sorted(canonical(config.to_dict()) for config in configs)
    return digest(*listed, *aims)
