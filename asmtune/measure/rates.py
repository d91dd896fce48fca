"""Times what no datasheet says about the GPU that is there: attainable bandwidths and rates.

The clock is that of tuning. Memory is timed by a device copy, L2 by a Triton kernel that reads a
buffer of a third of it again and again, tensor cores by the vendor's matrix product, and a launch
by an empty kernel.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

import triton
import triton.language as tl

from asmtune.core.config import Config
from asmtune.core.failures import guarded
from asmtune.core.hardware.descriptor import descriptor_of, target_of
from asmtune.core.hardware.model import Target
from asmtune.core.records.artifacts import Failure
from asmtune.measure.timing.clock import Clock, Subject

SAMPLES: Final = 12
_LONG_S: Final = 0.03
"""Seconds of a matrix product above which a smaller one is taken."""


@triton.jit  # type: ignore[untyped-decorator]
def read_again(x_ptr, out_ptr, tiles, steps, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def] # noqa: N803
    """Read `steps` tiles past L1, each program from a tile of its own on."""
    program = tl.program_id(0)
    tile = program % tiles
    total = tl.zeros((BLOCK,), tl.float32)
    for _ in range(steps):
        at = tile * BLOCK + tl.arange(0, BLOCK)
        total += tl.load(x_ptr + at, cache_modifier=".cg")
        tile = (tile + tl.num_programs(0)) % tiles
    tl.store(out_ptr + program, tl.sum(total, 0))


@triton.jit
def nothing():  # type: ignore[no-untyped-def]
    """Do nothing."""


@dataclass(frozen=True)
class MeasuringSizes:
    """Sizes of what is moved and multiplied; a test takes less.

    Attributes:
        copied: bytes of the copy's source, at most; an eighth of the memory if that is less.
        side: of the square matrices, halved where a product would take long.
        steps: tiles that each program reads.
        programs_per_sm, block: shapes of the kernel that reads L2; the best of them counts.
    """

    copied: int = 1 << 30
    side: int = 8192
    steps: int = 256
    programs_per_sm: tuple[int, ...] = (4, 8, 16)
    block: int = 4096


@dataclass(frozen=True)
class MeasuredRate:
    """A figure of a descriptor by its name, such as `measured_tensor_flops_per_s.bf16`."""

    name: str
    value: float
    how: str


@dataclass
class RateMeter:
    """Measures the rates of PyTorch's current GPU.

    Attributes:
        target: what is known of it so far.
        clock: takes samples with cold caches.
        warm_clock: takes samples without a flush of L2.
        place: the device in PyTorch's words.
        failures: why a rate could not be measured, by its name.
    """

    target: Target
    clock: Clock
    warm_clock: Clock
    place: str = "cuda"
    sizes: MeasuringSizes = field(default_factory=MeasuringSizes)
    failures: dict[str, str] = field(default_factory=dict)

    def rates(self) -> Iterator[MeasuredRate]:
        """Yield each rate as it is measured; one that cannot be is noted in `failures`."""
        works: dict[str, Callable[[], MeasuredRate]] = {
            "measured_launch_us": self._launch,
            "measured_dram_bytes_per_s": self._copy,
            "l2_bytes_per_s": self._l2,
        }
        for dtype in ("fp16", "bf16", "tf32", "fp8", "int8", "fp64"):
            if dtype in self.target.tensor_flops_per_s:
                works[f"measured_tensor_flops_per_s.{dtype}"] = partial(self._product, dtype)
        for name, work in works.items():
            outcome = guarded("launch", work)
            if isinstance(outcome, Failure):
                self.failures[name] = outcome.detail.strip().splitlines()[0]
            else:
                yield outcome

    def _seconds(self, clock: Clock, run: Callable[[], object], samples: int = SAMPLES) -> float:
        """Return the median time of a launch."""

        def launch() -> None:
            run()

        subject = Subject(Config({}), launch, lambda: None)
        failure = clock.warm_up(subject)
        if failure is not None:
            raise RuntimeError(failure.detail)
        return statistics.median(clock.round([subject])[0] for _ in range(samples)) / 1e6

    def _launch(self) -> MeasuredRate:
        seconds = self._seconds(self.clock, lambda: nothing[(1,)]())
        how = "a launch of an empty kernel of one program, between two events"
        return MeasuredRate("measured_launch_us", seconds * 1e6, how)

    def _copy(self) -> MeasuredRate:
        import torch

        size = min(self.sizes.copied, self.target.dram_bytes // 8)
        source = torch.zeros(size, dtype=torch.uint8, device=self.place)
        copy = torch.empty_like(source)
        seconds = self._seconds(self.clock, lambda: copy.copy_(source))
        how = f"device copy of {size >> 20} MiB, bytes read plus bytes written"
        return MeasuredRate("measured_dram_bytes_per_s", 2 * size / seconds, how)

    def _l2(self) -> MeasuredRate:
        import torch

        block, steps = self.sizes.block, self.sizes.steps
        tiles = max(1, self.target.l2_bytes // 3 // (4 * block))
        values = torch.zeros(tiles * block, dtype=torch.float32, device=self.place)
        best = 0.0
        for programs_per_sm in self.sizes.programs_per_sm:
            programs = programs_per_sm * self.target.sms
            sums = torch.empty(programs, dtype=torch.float32, device=self.place)
            run = partial(read_again[(programs,)], values, sums, tiles, steps, BLOCK=block)
            best = max(best, 4 * block * steps * programs / self._seconds(self.warm_clock, run))
        how = f"reads past L1 of {values.numel() >> 18} MiB again and again"
        return MeasuredRate("l2_bytes_per_s", best, how)

    def _product(self, dtype: str) -> MeasuredRate:
        side = self.sizes.side
        if 2 * side**3 / self.target.tensor_flops_per_s[dtype] > _LONG_S:
            side //= 2
        with _tf32():
            multiply = _MULTIPLY[dtype](side, self.place)
            seconds = self._seconds(self.clock, multiply)
        how = f"the vendor's matrix product of {side} cubed"
        return MeasuredRate(f"measured_tensor_flops_per_s.{dtype}", 2 * side**3 / seconds, how)


def _dense(name: str, side: int, place: str) -> Callable[[], object]:
    import torch

    shape, dtype = (side, side), getattr(torch, name)
    a, b = (torch.randn(shape, device=place).to(dtype) for _ in range(2))
    out = torch.empty(shape, dtype=dtype, device=place)
    return partial(torch.matmul, a, b, out=out)


def _int8(side: int, place: str) -> Callable[[], object]:
    import torch

    a, b = (torch.randint(-8, 8, (side, side), device=place, dtype=torch.int8) for _ in range(2))
    from asmtune.triton_api.tensors import int8_product

    return partial(int8_product, a, b.t())


def _fp8(side: int, place: str) -> Callable[[], object]:
    import torch

    a, b = (torch.randn(side, side, device=place).to(torch.float8_e4m3fn) for _ in range(2))
    one = torch.ones((), device=place)
    from asmtune.triton_api.tensors import scaled_product

    return partial(scaled_product, a, b.t(), one)


_MULTIPLY: Final[Mapping[str, Callable[[int, str], Callable[[], object]]]] = {
    "fp16": partial(_dense, "float16"),
    "bf16": partial(_dense, "bfloat16"),
    "tf32": partial(_dense, "float32"),
    "fp64": partial(_dense, "float64"),
    "int8": _int8,
    "fp8": _fp8,
}


@contextmanager
def _tf32() -> Iterator[None]:
    """Let PyTorch multiply FP32 matrices in TF32, by the setting that this version has."""
    import torch

    settings: Any = torch.backends.cuda.matmul
    name, value = ("fp32_precision", "tf32")
    if not hasattr(settings, name):
        name, value = "allow_tf32", True  # type: ignore[assignment]
    before = getattr(settings, name)
    setattr(settings, name, value)
    try:
        yield
    finally:
        setattr(settings, name, before)


def measured_target(target: Target, device: str, rates: list[MeasuredRate], when: str) -> Target:
    """Return a device's target with measured figures; `when` says by which versions, and when.

    A bandwidth of L2 below that of the memory is left out: the reads were not those of L2.

    Raises:
        TargetError: a figure cannot be one of a descriptor.
    """
    document = descriptor_of(target)
    document["aliases"] = list(dict.fromkeys((*document["aliases"], device)))
    for rate in rates:
        if rate.name == "l2_bytes_per_s" and rate.value < target.dram_bytes_per_s:
            continue
        source = f"measured on one {device} ({when}): {rate.how}"
        figure = {"value": float(f"{rate.value:.4g}"), "source": source, "kind": "measured"}
        table, _, entry = rate.name.partition(".")
        if entry:
            document.setdefault(table, {})[entry] = figure
        else:
            document[table] = figure
    return target_of(document, f"what was measured on {device}")
