"""Steps of the ladder: how each is launched, and the facts of its assembly."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch.nn import functional

from asmtune.base.errors import CompileError
from asmtune.base.settings import Settings
from asmtune.compile.lower import Lowering, LowerRequest
from asmtune.compile.pool import compile_one
from asmtune.core.config import Config
from asmtune.core.hardware.model import Target
from asmtune.core.problem import Problem
from asmtune.core.records.artifacts import Artifact
from asmtune.predict.features.profile import Profile
from asmtune.predict.features.reader import ProfileReader
from benchmarks.ladder import gemm

Size = Mapping[str, int]

SIZES: tuple[Size, ...] = tuple(dict.fromkeys("MNK", extent) for extent in (1024, 4096, 1000))
PRODUCT, EPILOGUE = "torch.matmul", "torch.addmm, gelu"


@dataclass(frozen=True)
class Step:
    """A step of the ladder.

    Attributes:
        kernel: the Triton function, undecorated.
        grid: its grid.
        config: the config of its launch; None if asmtune tunes it.
        tuned: the function as asmtune tunes it, if it does.
    """

    kernel: Any
    grid: Callable[[Mapping[str, Any]], tuple[int]]
    config: Config | None = None
    tuned: Any = None

    @property
    def launched_with(self) -> Config:
        """Give the config of the last launch; before the first, the first config of the space."""
        best = self.tuned.best_config if self.tuned is not None else None
        return self.config or best or gemm.SPACE.first()


STEPS = {
    "v0": Step(gemm.naive, gemm.elements, gemm.V0),
    "v1": Step(gemm.tiled, gemm.tiles, gemm.V1),
    "v2": Step(gemm.pipelined, gemm.tiles, gemm.V2),
    "v3": Step(gemm.pipelined, gemm.tiles, tuned=gemm.autotuned),
    "v4": Step(gemm.fused, gemm.tiles, tuned=gemm.epilogue),
}


@dataclass(frozen=True)
class Operands:
    """Operands of a product of one size, in halves."""

    a: torch.Tensor
    b: torch.Tensor
    bias: torch.Tensor

    @classmethod
    def random(cls, size: Size, device: str) -> Operands:
        """Draw normal numbers; none on "meta"."""
        extents = ((size["M"], size["K"]), (size["K"], size["N"]), (size["N"],))
        return cls(*(torch.randn(n, device=device).half() for n in extents))

    def launches(self) -> dict[str, Callable[[], torch.Tensor]]:
        """List all steps and PyTorch's functions, by name."""
        a, b, bias = self.a, self.b, self.bias
        steps = {name: partial(getattr(gemm, name), a, b) for name in STEPS if name != "v4"}
        return {
            **steps,
            "v4": partial(gemm.v4, a, b, bias),
            PRODUCT: partial(torch.matmul, a, b),
            # One call for product and bias, since cuBLAS adds a bias by itself.
            EPILOGUE: lambda: functional.gelu(torch.addmm(bias, a, b)),
        }

    def exact(self) -> tuple[torch.Tensor, torch.Tensor]:
        """Compute the product, and v4's activation of it, in float64."""
        product = self.a.double() @ self.b.double()
        return product, functional.gelu(product + self.bias.double())


def assembly(name: str, size: Size, target: Target, settings: Settings) -> dict[str, Any]:
    """Read the facts of a step's machine code at a size, with the config that it is launched with.

    Raises:
        CompileError: it does not compile.
    """
    step, given = STEPS[name], Operands.random(size, "meta")
    config = step.launched_with
    arguments: dict[str, Any] = gemm.arguments(given.a, given.b)
    if name == "v4":
        arguments |= {"bias_ptr": given.bias, "ACTIVATION": "gelu"}
    problem = Problem(step.kernel, arguments, step.grid, size, name)
    request = Lowering(problem, target, settings.compile_timeout_s).request(config)
    artifact = compile_one(request, settings) if isinstance(request, LowerRequest) else request
    if not isinstance(artifact, Artifact):
        raise CompileError(f"ladder: {name} does not compile at {config}: {artifact.detail}")
    read = ProfileReader(target)(artifact)
    return {"config": config.to_dict(), **_shown(read), "products": _products(artifact, read)}


def _shown(read: Profile) -> dict[str, Any]:
    """List registers, spills, shared memory, and the loads in loops, by their bytes."""
    widths: Counter[int] = Counter()
    ahead = 0
    for segment in read.segments:
        for traffic, times in segment.traffic.items():
            if segment.depth and (traffic.space, traffic.direction) == ("global", "load"):
                widths[traffic.bytes] += times
                ahead += times * traffic.copies
    names = {"registers": "regs_per_thread", "spills": "spill_words", "shared": "shared_bytes"}
    shown: dict[str, Any] = {word: int(read.static[name]) for word, name in names.items()}
    loads = {str(width): widths[width] for width in sorted(widths)}
    return {**shown, "loads": loads, "cp_async": ahead}


def _products(artifact: Artifact, read: Profile) -> str:
    """Name the instruction that multiplies: wgmma, mma.sync or fma, with its shape if any."""
    for name, feature in (("wgmma", "text_wgmma"), ("mma.sync", "text_mma_sync")):
        if read.static[feature]:
            shape = re.search(rf"{name}\S*?\.(m\d+n\d+k\d+)", artifact.outputs["ptx"])
            return f"{name} {shape[1]}" if shape else name
    return "fma"
