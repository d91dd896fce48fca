"""Launches, tuning and clocks of `@asm_autotune` on the host: all is real but the GPU.

Configs are compiled for an H200 and kept in a real store. PyTorch does on the host what a
kernel would do, while it is tuned as for its user, and a function of the config tells the time.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
import triton
import triton.language as tl

from asmtune.compile.load import Binary, LoadedLaunch
from asmtune.core.config import Config
from asmtune.measure.bench.base import BenchSetup
from asmtune.measure.bench.dedup import DedupBench
from asmtune.measure.bench.local import LocalBench
from asmtune.tuning.options import EFFORTS
from asmtune.tuning.tuner import Tuner
from tests.dispatch.case_kernels import copy_as, fill_either, increment, staged
from tests.tuning_support import DEVICE, HostMachine

Effect = Callable[[Mapping[str, Any]], None]

# Roofline ranks: the learned scorer has to be fitted first.
EFFORT = replace(EFFORTS["quick"], scorer="roofline")


@triton.jit
def copy(x_ptr, out_ptr, n, scale=1, BLOCK: tl.constexpr = 32):
    """Multiply by `scale`."""
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out_ptr + at, tl.load(x_ptr + at, mask=at < n) * scale, mask=at < n)


def configs(*blocks: int, **options: Any) -> list[Any]:
    """A config a block."""
    return [triton.Config({"BLOCK": block}, **options) for block in blocks or (32, 128)]


def grid(values: Mapping[str, Any]) -> tuple[int]:
    """Programs for `n` elements."""
    return (triton.cdiv(values["n"], values["BLOCK"]),)


def _copied(values: Mapping[str, Any]) -> None:
    n = values["n"]
    values["out_ptr"][:n] = values["x_ptr"][:n] * values.get("scale", 1)


def _incremented(values: Mapping[str, Any]) -> None:
    values["x_ptr"][: values["n"]] += 1


def _filled(values: Mapping[str, Any]) -> None:
    place = values["out_ptr"] if values["x_ptr"] is None else values["x_ptr"]
    place[: values["n"]] = 1.0


def _nothing(_: Mapping[str, Any]) -> None:
    pass


KERNELS: dict[Any, Effect] = {
    copy: _copied,
    copy_as: _copied,
    increment: _incremented,
    fill_either: _filled,
    staged: _nothing,
}


@dataclass
class HostGpu(HostMachine):
    """A machine for any of `KERNELS`.

    Attributes:
        launched: arguments and values of each launch of the user's, by name.
        tuned: how often a bench was opened.
        seen: the block of each launch while tuning.
    """

    us: Callable[[Config], float] = lambda config: float(config.kwargs.get("BLOCK", 1))
    launched: list[dict[str, Any]] = field(default_factory=list)
    tuned: int = 0
    seen: list[int] = field(default_factory=list)
    effect: Effect = _nothing

    def launch(
        self, binary: Binary, values: Mapping[str, Any], pre_hook: Callable[..., Any] | None
    ) -> LoadedLaunch:
        """Do what the kernel would do."""
        prepared = super().launch(binary, values, pre_hook)

        def run() -> None:
            self.seen.append(values.get("BLOCK", 0))
            self.effect(values)

        return replace(prepared, run=run)

    def bench(self, setup: BenchSetup) -> Any:
        """Time a problem's configs here."""
        self.tuned += 1
        effect = next(
            effect
            for kernel, effect in KERNELS.items()
            if kernel.__name__ == setup.lowering.problem.name.rpartition(".")[2]
        )
        # Its own: a function that a race calls may tune another kernel meanwhile.
        machine = replace(self, effect=effect)
        return DedupBench(setup.lowering.problem, LocalBench(setup, machine))

    def runs(self, kernel: Any) -> Callable[..., None]:
        """Stand in for `kernel.run`: launch once for the user."""

        def run(*args: Any, grid: Any, warmup: bool, **keywords: Any) -> None:
            values = {**dict(zip(kernel.arg_names, args, strict=False)), **keywords}
            sizes = grid(values) if callable(grid) else grid
            self.launched.append({**values, "grid": sizes})
            KERNELS[kernel](values)

        return run


def host_gpu(folder: Path, patch: pytest.MonkeyPatch) -> HostGpu:
    """A machine whose GPU is the host; its store lies in a folder."""
    made = HostGpu()
    patch.setenv("ASMTUNE_CACHE_DIR", str(folder))
    patch.setattr("asmtune.measure.timing.nvml.device_name", lambda: DEVICE)
    for kernel in KERNELS:
        patch.setattr(kernel, "run", made.runs(kernel))
    opened = Tuner.open.__func__  # type: ignore[attr-defined]

    def opening(cls: Any, *args: Any, **keywords: Any) -> Tuner:
        workshop = opened(cls, *args, **keywords)
        workshop.opener = made.bench
        return workshop

    patch.setattr(Tuner, "open", classmethod(opening))
    return made
