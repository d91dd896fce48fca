"""Measurement of a row of the table: a kernel at a shape and dtype, checked, then timed."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from inspect import signature
from statistics import geometric_mean
from types import ModuleType
from typing import Any

import torch

from asmtune.core.config import Config
from asmtune.core.failures import guarded
from asmtune.core.hardware.model import Target
from asmtune.core.records.artifacts import Failure
from asmtune.core.records.tuned import Measurement, quantile
from asmtune.measure.timing.policy import TimingPolicy
from asmtune.runtime.autotuner import AsmAutotuner
from asmtune.runtime.decorator import autotuners
from asmtune.workshop.kernel_checks.reports import as_tuple
from asmtune.workshop.kernel_checks.tolerances import excess
from benchmarks.harness import Ways, raced
from benchmarks.kernels.entry import Entry
from benchmarks.kernels.plan import Place
from tests.kernels.accuracy import case_of, doubled

Shape = Mapping[str, int]

CALLED = "called"
"""The public function as it is called; "ours" leaves the vendor out."""


@dataclass(frozen=True)
class Timer:
    """Settings by which rows are timed.

    Attributes:
        policy: timing policy of asmtune's clock.
        target: the machine's limits; None if this GPU has no descriptor.
        device: device of the inputs.
    """

    policy: TimingPolicy
    target: Target | None
    device: str = "cuda"

    def row(self, module: ModuleType, entry: Entry, shape: Shape, dtype: str) -> dict[str, Any]:
        """Check a row and, if it passes, time it; `wrong` says by how much it fails."""
        name = module.__name__.rpartition(".")[2]
        group = entry.group_at(shape, dtype)
        row: dict[str, Any] = {"kernel": name, "group": group, "dtype": dtype}
        row["shape"] = dict(shape)
        torch.manual_seed(0)
        inputs, public = module.inputs(shape, dtype, self.device), getattr(module, name)
        before = _configs(module)
        with torch.no_grad():
            start = time.perf_counter()
            results = as_tuple(public(**inputs))
            self._wait()
            row["first_launch_s"] = round(time.perf_counter() - start, 3)
            alone = _without_vendor(public)
            ours = partial(public, **inputs, **alone)
            made = (results, as_tuple(ours())) if alone else (results,)
            expected = as_tuple((entry.exact or module.baseline)(**doubled(inputs)))
            allowed = case_of(name).rows(self.device, dtype)
            row["error_by_tolerance"] = max(_error(one, expected, allowed) for one in made)
            if not row["error_by_tolerance"] <= 1.0:
                return {**row, "wrong": min(row.pop("error_by_tolerance"), 1e300)}
            moved = _bytes([*inputs.values(), *results])
            with torch.enable_grad():
                vendor = entry.vendor(inputs)
                others = {name: make(inputs) for name, make in entry.others.items()}
            row |= _vendor_error(vendor, expected, allowed)
            del expected, made
            launches: dict[str, Callable[[], Any]] = {
                "ours": ours,
                "vendor": vendor,
                "baseline": partial(module.baseline, **inputs),
                **others,
            }
            if alone:
                launches[CALLED] = partial(public, **inputs)
            timed = self._race(launches)
        row |= {"config": _config(module, before), "vendor_name": entry.vendor_name}
        row |= _speedups(timed)
        limits = self._limits(timed["ours"], moved)
        if limits and entry.flops is not None:
            limits |= self._arithmetic(limits["seconds"], entry.flops(shape), entry.rates[dtype])
        return row | limits

    def _wait(self) -> None:
        if self.device == "cuda":
            torch.cuda.synchronize()

    def _race(self, launches: Ways) -> dict[str, Measurement | Failure]:
        return raced(launches, self.policy)

    def _limits(self, measured: Measurement | Failure, moved: int) -> dict[str, Any]:
        """Compute bandwidth, and its share of the specified and of the measured peak."""
        if not isinstance(measured, Measurement):
            return {}
        seconds = measured.median_us * 1e-6
        figures = {"seconds": seconds, "bytes": moved, "bytes_per_s": moved / seconds}
        if self.target is not None:
            figures["share_of_dram"] = figures["bytes_per_s"] / self.target.dram_bytes_per_s
            seen = self.target.measured_dram_bytes_per_s
            if seen is not None:
                figures["share_of_measured_dram"] = figures["bytes_per_s"] / seen
        return figures

    def _arithmetic(self, seconds: float, flops: float, rate: str) -> dict[str, float]:
        """Compute FLOP/s, and its share of the machine's rate of that name."""
        figures = {"flops_per_s": flops / seconds}
        if self.target is not None:
            figures["share_of_flops"] = figures["flops_per_s"] / self.target.flops_per_s(rate)
        return figures


def called_first(module: ModuleType) -> list[AsmAutotuner]:
    """List the tuners of a module's kernel that its public function calls unless told otherwise.

    What the Gluon kernel for Hopper does not take is launched beside the vendor's alone.
    """
    names = ("_tuned", "_beside_vendor")
    return [getattr(module, name) for name in names if hasattr(module, name)]


def _configs(module: ModuleType) -> list[Config]:
    """List the configs of the last launches: of the tuners that are called first, and others."""
    tuners = (*called_first(module), *autotuners(module))
    return [config for tuner in tuners if (config := tuner.best_config) is not None]


def _config(module: ModuleType, before: Sequence[Config]) -> dict[str, Any]:
    """Give the config of the row's launch: the first that is not as before, if there is one."""
    launched = _configs(module)
    fresh = [config for config in launched if all(config is not one for one in before)]
    return (fresh or launched)[0].to_dict() if launched else {}


def _without_vendor(public: Callable[..., Any]) -> dict[str, bool]:
    """Return the argument that leaves the vendor out, of functions that have one."""
    return {"vendor": False} if "vendor" in signature(public).parameters else {}


def _speedups(timed: Mapping[str, Measurement | Failure]) -> dict[str, Any]:
    """Compute percentiles of each, and the factors by which ours is faster than the others.

    `called_over_vendor` has the factor of the public function as it is called, with the vendor's
    among its candidates.
    """
    figures: dict[str, Any] = {who: _percentiles(outcome) for who, outcome in timed.items()}
    factors = {f"over_{other}": ("ours", other) for other in timed if other not in ("ours", CALLED)}
    factors |= {"called_over_vendor": (CALLED, "vendor")} if CALLED in timed else {}
    for name, (mine, other) in factors.items():
        if "p50_us" in figures[mine] and "p50_us" in figures[other]:
            figures[name] = round(figures[other]["p50_us"] / figures[mine]["p50_us"], 3)
    return figures


def summary(rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Average the speedups over the vendor, by kernel and by group; list what failed.

    `over_others_by_kernel` has those over further competitors, by kernel and name.
    """
    result: dict[str, Any] = {"wrong": [Place.of(row).name for row in rows if "wrong" in row]}
    for part in ("kernel", "group"):
        by_name: dict[str, list[float]] = {}
        for row in rows:
            if "over_vendor" in row:
                by_name.setdefault(row[part], []).append(row["over_vendor"])
        result[f"over_vendor_by_{part}"] = {name: _means(all_) for name, all_ in by_name.items()}
    others: dict[str, dict[str, list[float]]] = {}
    for row in rows:
        for name, factor in row.items():
            if name.startswith("over_") and name not in ("over_vendor", "over_baseline"):
                of_kernel = others.setdefault(row["kernel"], {})
                of_kernel.setdefault(name.removeprefix("over_"), []).append(factor)
    result["over_others_by_kernel"] = {
        kernel: {name: _means(all_) for name, all_ in by_name.items()}
        for kernel, by_name in others.items()
    }
    return result


def _means(factors: Sequence[float]) -> dict[str, Any]:
    return {
        "geometric_mean": round(geometric_mean(factors), 3),
        "least": min(factors),
        "rows": len(factors),
    }


def _error(
    results: Sequence[torch.Tensor], expected: Sequence[torch.Tensor], allowed: Any
) -> float:
    """Compute the largest error of the results, relative to what is allowed."""
    pairs = zip(results, expected, strict=True)
    return max(excess(a, b.detach(), allowed) for a, b in pairs)


def _vendor_error(
    vendor: Callable[[], Any], expected: Sequence[torch.Tensor], allowed: Any
) -> dict[str, float]:
    """Compute the error of the vendor's results in the same way, if they are of the same kind."""
    made = guarded("vendor", lambda: as_tuple(vendor()))
    if isinstance(made, Failure) or _shapes(made) != _shapes(expected):
        return {}  # the race says why it cannot run
    return {"vendor_error_by_tolerance": min(_error(made, expected, allowed), 1e300)}


def _shapes(results: Sequence[Any]) -> list[Any]:
    return [getattr(result, "shape", None) for result in results]


def _bytes(values: Sequence[Any]) -> int:
    """Add up the bytes of all tensors, each read or written once."""
    return sum(value.nbytes for value in values if torch.is_tensor(value))


def _percentiles(measured: Measurement | Failure) -> dict[str, Any]:
    if not isinstance(measured, Measurement):
        return {"failed": measured.detail}
    ordered = sorted(measured.samples_us)
    figures = {"p50_us": measured.median_us}
    figures |= {f"p{p}_us": quantile(ordered, p / 100) for p in (90, 99)}
    return {**{name: round(value, 3) for name, value in figures.items()}, "samples": len(ordered)}
