"""Accuracy of an output against a reference: errors, quantiles, clipping, and bounds on them.

The relative error of an element is |o - r| / max(|r|, RMS of r). The plain quotient |o - r| / |r|
is unbounded near zeros of the reference: where terms cancel, a correct kernel has any quotient. The
error of a sum scales with its terms (Higham, Accuracy and Stability of Numerical Algorithms, 4.2),
for which the RMS of the reference is taken here. Where the reference is all zeros, the RMS of the
output takes its place.

The limits of formats are those of `torch.finfo`, which for float8_e4m3fn and float8_e5m2 are those
of OCP's 8-bit floating point specification (OFP8, 1.0): 448 and 57344.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any, Final

from asmtune.base.errors import InputError
from asmtune.core.inputs.shapes import parse_assignments
from asmtune.measure.checks.compare import pieces

if TYPE_CHECKING:
    from torch import Tensor

_MOST: Final = 1e300  # errors beyond it count as this, so that sums of them stay finite
_QUANTILES: Final = {"p50": 0.5, "p99": 0.99, "p999": 0.999}

PIECE: Final = 1 << 20
"""Elements measured at once: their temporaries take some 100 MB."""


@dataclass(frozen=True, kw_only=True)
class AccuracyStats:
    """Holds the errors of an output; every number is finite where one could be compared.

    Places where the output or the reference is NaN or infinite enter `elements`, `nonfinite` and
    `clip` alone. Where all are, and the output as the reference is, errors are NaN: no number was
    compared, and no limit of them is kept.

    Attributes:
        elements: elements compared.
        nonfinite: places where either is NaN or infinite and the other is not the same.
        max_abs: largest |o - r|.
        max_rel: largest relative error, as the module defines it.
        mean_rel: mean of the relative error.
        p50: quantile of the relative error: the least value that this share of the elements does
            not exceed, or up to 0.2% more; so are `p99`, and `p999` of 99.9%.
        rms_share: RMS of o - r over RMS of r.
        clip: share of all elements whose reference is beyond the format's largest finite value,
            and whose output is at that value, beyond it, infinite or NaN.
        amax: largest finite |o|.
        cosine: cosine of the angle between o and r as vectors; 1 if both are zero.
    """

    elements: int
    nonfinite: int = 0
    max_abs: float = 0.0
    max_rel: float = 0.0
    mean_rel: float = 0.0
    p50: float = 0.0
    p99: float = 0.0
    p999: float = 0.0
    rms_share: float = 0.0
    clip: float = 0.0
    amax: float = 0.0
    cosine: float = 1.0


@dataclass(frozen=True, kw_only=True)
class Bound:
    """Limits the errors of an output: each is the largest that is allowed, None for any.

    The fields are those of `AccuracyStats`. `cosine` is the least that is allowed. Without a limit
    on `nonfinite` no place may be NaN or infinite unless the reference is the same there.

    Raises:
        InputError: a limit is negative or not a finite number.
    """

    max_abs: float | None = None
    max_rel: float | None = None
    mean_rel: float | None = None
    p50: float | None = None
    p99: float | None = None
    p999: float | None = None
    rms_share: float | None = None
    clip: float | None = None
    cosine: float | None = None
    nonfinite: int | None = None

    def __post_init__(self) -> None:
        for limit in fields(self):
            value = getattr(self, limit.name)
            number = isinstance(value, int | float) and not isinstance(value, bool)
            if value is not None and not (number and 0 <= value < math.inf):
                raise InputError(
                    f"Bound: {limit.name}={value!r} is no limit: a finite number of 0 or more"
                )

    @classmethod
    def parse(cls, text: str) -> Bound:
        """Parse limits as the command line has them, such as "p99=3e-2,clip=0.03".

        Raises:
            InputError: a name is unknown or given twice, or a value is no limit.
        """
        limits, known = parse_assignments(text, "accuracy"), [limit.name for limit in fields(cls)]
        if unknown := sorted(limits.keys() - known):
            hint = f"no limit is called {unknown[0]!r}; they are {', '.join(known)}"
            raise InputError(f"accuracy {text!r}: {hint}")
        return cls(**limits)

    @property
    def limits(self) -> dict[str, float]:
        """Return the limits that hold by name, `nonfinite` always among them."""
        limits = {limit.name: getattr(self, limit.name) for limit in fields(self)}
        limits["nonfinite"] = limits["nonfinite"] or 0
        return {name: limit for name, limit in limits.items() if limit is not None}

    def broken(self, stats: AccuracyStats) -> dict[str, str]:
        """Return the limits that are broken by name, each as "p99 0.041 > 0.030"."""
        broken = {}
        for name, limit in self.limits.items():
            value, sign = getattr(stats, name), "<" if name == "cosine" else ">"
            if not (value >= limit if name == "cosine" else value <= limit):  # NaN keeps none
                broken[name] = f"{name} {f' {sign} '.join(_apart(value, limit))}"
        return broken

    def violations(self, stats: AccuracyStats) -> tuple[str, ...]:
        """List the texts of `broken`."""
        return tuple(self.broken(stats).values())


def _apart(value: float, limit: float) -> tuple[str, str]:
    """Format two numbers with as many digits as tell them apart, 3 at least."""
    pairs = ((f"{value:.{n}g}", f"{limit:.{n}g}") for n in range(3, 18))
    return next((pair for pair in pairs if pair[0] != pair[1]), (repr(value), repr(limit)))


def measure_accuracy(output: Tensor, reference: Tensor) -> AccuracyStats:
    """Measure an output against a reference of the same shape, in float64.

    Args:
        output: of any dtype with a `torch.finfo` or `torch.iinfo`, bool, or complex.
        reference: of any such dtype, on any device; complex if the output is.

    Raises:
        InputError: the shapes differ, or a dtype cannot be compared.
    """
    import torch

    output, reference = _comparable(output, reference)
    if not output.numel():
        return AccuracyStats(elements=0)
    with torch.no_grad():
        sums = _Sums(output, reference)
        for add in (sums.add_scale, sums.add_error):
            for place in pieces(output.shape, PIECE):
                add(place)
        return sums.stats()


def _comparable(output: Tensor, reference: Tensor) -> tuple[Tensor, Tensor]:
    """Check shapes and dtypes; view complex numbers as pairs of floats."""
    import torch

    if output.shape != reference.shape:
        raise InputError(
            f"accuracy: the output has shape {list(output.shape)}, the reference "
            f"{list(reference.shape)}; give a reference of the output's shape"
        )
    if output.is_complex() != reference.is_complex():
        raise InputError(f"accuracy: {output.dtype} cannot be compared with {reference.dtype}")
    if output.is_complex():
        output, reference = (torch.view_as_real(x.resolve_conj()) for x in (output, reference))
    for values in (output, reference):
        try:
            _limit(values.dtype)
        except (NotImplementedError, TypeError) as error:
            raise InputError(
                f"accuracy: no numbers can be read from dtype {values.dtype}; convert it first"
            ) from error
    return output.detach(), reference.detach()


def _limit(dtype: Any) -> tuple[float, bool]:
    """Return a format's largest finite value, and whether it holds whole numbers alone."""
    import torch

    if dtype == torch.bool:
        return 1.0, True
    if not dtype.is_floating_point:
        return float(torch.iinfo(dtype).max), True
    return torch.finfo(dtype).max, False


@dataclass
class _Sums:
    """Adds up pieces in two passes: first the scale of the reference, then the errors.

    `norms` are roots of a mean of squares, added by `hypot`: squares neither overflow nor vanish.
    """

    output: Tensor
    reference: Tensor
    finite: int = 0
    unequal: int = 0
    clipped: int = 0
    amax: float = 0.0
    norms: dict[str, float] = field(default_factory=lambda: dict.fromkeys("ore", 0.0))
    dot: float = 0.0
    max_abs: float = 0.0
    max_rel: float = 0.0
    mean_rel: float = 0.0
    bins: Any = 0

    def add_scale(self, place: tuple[slice, ...]) -> None:
        """Count what is not finite or clipped, and add the norms of what is finite in both."""
        got, want = self._piece(place)
        finite = got.isfinite() & want.isfinite()
        same = (got == want) | (got.isnan() & want.isnan())
        self.finite += int(finite.sum())
        self.unequal += int((~finite & ~same).sum())
        most, is_whole = _limit(self.output.dtype)
        # Below zero, whole numbers reach one further.
        beyond = (want > most) | (-want > most + is_whole)
        clipped = beyond & want.isfinite() & ~(got.abs() < most)
        self.clipped += int(clipped.sum())
        self.amax = max(self.amax, float(got.where(got.isfinite(), 0.0).abs().max()))
        self.norms["o"] = math.hypot(self.norms["o"], self._rms(got.where(finite, 0.0)))
        self.norms["r"] = math.hypot(self.norms["r"], self._rms(want.where(finite, 0.0)))

    def add_error(self, place: tuple[slice, ...]) -> None:
        """Add the errors of a piece's elements that are finite in both."""
        got, want = self._piece(place)
        finite = got.isfinite() & want.isfinite()
        got, want = got[finite], want[finite]
        if not got.numel():
            return
        error = (got - want).abs_().clamp_(max=_MOST)
        if not self.output.dtype.is_floating_point and not self.reference.dtype.is_floating_point:
            # 64-bit integers that differ may be the same float64.
            same = self.output[place] == self.reference[place].to(got.device)
            error = error.where(same[finite], error.clamp(min=1.0))
        share = self.finite / self.output.numel()
        rms = min((self.norms["r"] or self.norms["o"]) / math.sqrt(share), _MOST)
        relative = (error / want.abs().clamp_(min=rms or 1.0)).clamp_(max=_MOST)
        self.max_abs = max(self.max_abs, float(error.max()))
        self.max_rel = max(self.max_rel, float(relative.max()))
        self.mean_rel += float((relative / self.finite).sum())
        self.bins = self.bins + _binned(relative)
        self.norms["e"] = math.hypot(self.norms["e"], self._rms(error))
        if self.norms["o"] and self.norms["r"]:
            products = got / self.norms["o"] * (want / self.norms["r"])
            self.dot += float((products / self.output.numel()).sum())

    def _piece(self, place: tuple[slice, ...]) -> tuple[Tensor, Tensor]:
        got, want = self.output[place], self.reference[place]
        return got.double(), want.to(got.device).double()

    def _rms(self, values: Tensor) -> float:
        """Return the root of the sum of squares over all elements, which do not overflow."""
        most = float(values.abs().max())
        if not most:
            return 0.0
        return most * math.sqrt(float((values / most).square_().sum()) / self.output.numel())

    def stats(self) -> AccuracyStats:
        """Return the statistics of all pieces."""
        elements = self.output.numel()
        counted: dict[str, Any] = {"elements": elements, "nonfinite": self.unequal}
        counted |= {"clip": self.clipped / elements, "amax": self.amax}
        if not self.finite:
            if not self.unequal:
                counted = {each.name: math.nan for each in fields(AccuracyStats)} | counted
            return AccuracyStats(**counted)
        norms = self.norms
        base = norms["r"] or norms["o"]
        cosine = min(1.0, max(-1.0, self.dot))
        if not (norms["o"] and norms["r"]):
            cosine = float(norms["o"] == norms["r"])
        tails = _quantiles(self.bins, _QUANTILES.values())
        tails = [min(value, self.max_rel) for value in tails]
        counted |= dict(zip(_QUANTILES, tails, strict=True))
        return AccuracyStats(
            **counted,
            max_abs=self.max_abs,
            max_rel=self.max_rel,
            mean_rel=self.mean_rel,
            rms_share=min(norms["e"] / base, _MOST) if base else 0.0,
            cosine=cosine,
        )


_MANTISSA: Final = 14  # bits of a float32 that a bin drops: bins are 2^-9 wide, relatively


def _binned(values: Tensor) -> Any:
    """Count values of 0 or more by the leading 18 bits of their float32."""
    import torch

    top = torch.finfo(torch.float32).max
    bits = values.clamp(max=top).to(torch.float32).view(torch.int32) >> _MANTISSA
    return torch.bincount(bits, minlength=1 << (31 - _MANTISSA))


def _quantiles(counts: Any, shares: Iterable[float]) -> list[float]:
    """Return the upper edges of the bins of `_binned` that hold quantiles; 0 exactly."""
    import torch

    up_to = counts.cpu().cumsum(0)
    ranks = torch.tensor([max(1, math.ceil(share * int(up_to[-1]))) for share in shares])
    places = torch.searchsorted(up_to, ranks)
    edges = ((places + 1 << _MANTISSA) - 1).to(torch.int32).view(torch.float32)
    known = edges.clamp(max=torch.finfo(torch.float32).max).where(places > 0, 0.0)
    return [float(edge) for edge in known]
