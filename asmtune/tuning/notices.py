"""Warnings of a search, once a kernel: why nothing was tuned, and what held it back."""

from __future__ import annotations

import warnings
from typing import Final

from asmtune.base.text import amount, user_stacklevel
from asmtune.core.config import Config
from asmtune.core.records.artifacts import Failure
from asmtune.tuning.search.state import State


class DefaultOnlyWarning(UserWarning):
    """Every config that was tried computes something else than the default, which is kept."""


class CompileMemoryWarning(UserWarning):
    """The limit of memory of compiles has cost a search several configs."""


_told: Final[set[tuple[str, type[UserWarning]]]] = set()

_SEVERAL: Final = 2


def tell_of_failures(kernel: str, state: State, compile_memory_bytes: int) -> None:
    """Warn of what explains a search's failures, each once for a kernel."""
    failures = {c: failure for c, failure in state.failures.items() if c != state.default}
    wrong = {c: f for c, f in failures.items() if f.stage == "check" and f.kind != "unchecked"}
    if wrong and set(state.timings) == {state.default}:
        _tell(
            kernel,
            DefaultOnlyWarning,
            f"nothing was tuned, since the output of each of {len(wrong)} configs that ran differs "
            f"from the default's: {_first(wrong)}; make the kernel compute the same with every "
            "config, or say what is right by reference=",
        )
    starved = {c: f for c, f in state.failures.items() if f.kind == "memory" and _compiles(f)}
    if len(starved) >= _SEVERAL:
        _tell(
            kernel,
            CompileMemoryWarning,
            f"{len(starved)} of {len({*state.verdicts, *state.failures})} configs could not be "
            f"compiled within {amount(compile_memory_bytes, 'B')} of address space: "
            f"{_first(starved)}; set ASMTUNE_COMPILE_MEMORY_MB higher, or take large tiles out of "
            "the space",
        )


def _compiles(failure: Failure) -> bool:
    return failure.stage not in ("launch", "check", "restore")


def _first(failures: dict[Config, Failure]) -> str:
    config, failure = next(iter(failures.items()))
    detail = failure.detail.splitlines()
    return f"the first, {config}: {detail[0] if detail else failure.kind}"


def _tell(kernel: str, kind: type[UserWarning], text: str) -> None:
    if (kernel, kind) not in _told:
        _told.add((kernel, kind))
        warnings.warn(f"kernel {kernel}: {text}", kind, stacklevel=user_stacklevel("contextlib"))
