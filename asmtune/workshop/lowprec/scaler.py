"""`Scaler`: scales from the running amax of a tensor that is seen again and again."""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal, get_args

import torch

from asmtune.base.errors import ArgumentTypeError, InputError
from asmtune.base.json_codec import shown
from asmtune.base.text import user_stacklevel
from asmtune.workshop.lowprec.casting import (
    E4M3,
    Granularity,
    amax_of,
    checked_format,
    dequantize,
    quantize,
)

Method = Literal["ema", "max", "last"]

_VERSION: Final = 1
_MOST_MARGIN: Final = 64


class ScaleWarning(UserWarning):
    """Values that a scale should not be made of: an amax far off, NaN, or infinity."""


@dataclass(eq=False)
class Scaler:
    """Keeps each block's amax over updates, and gives the scales of the next cast.

    scale = amax * 2^margin / the format's largest number, where amax is by `method`:
    "ema" the exponential average, "max" the largest of the history, "last" that of the last
    update. A block has scale 1 until its first finite element that is not zero, from which its
    average begins. An anomaly is reported, and counts like any other update, since a range that has
    really changed must be followed.

    Attributes:
        granularity: the blocks that share a scale.
        dtype: `torch.float8_e4m3fn` or `torch.float8_e5m2`.
        method: the amax that counts.
        decay: weight of the past in the exponential average, 0 to below 1.
        history: number of updates kept, for "max" and for the recent mean.
        margin: powers of two of head room above amax.
        anomaly: times the recent mean from which an amax is reported.
        updates: number of updates so far.
        nonfinite: NaN and infinities in all updates so far; they are in no scale.
    """

    granularity: Granularity = field(default_factory=Granularity)
    dtype: torch.dtype = E4M3
    method: Method = "ema"
    decay: float = 0.9
    history: int = 16
    margin: float = 0.0
    anomaly: float = 10.0
    updates: int = field(default=0, init=False)
    nonfinite: int = field(default=0, init=False)
    _average: torch.Tensor | None = field(default=None, init=False, repr=False)
    _amaxes: torch.Tensor | None = field(default=None, init=False, repr=False)

    def __post_init__(self) -> None:
        checked_format(self.dtype)
        if not isinstance(self.granularity, Granularity):
            raise ArgumentTypeError(
                f"granularity={self.granularity!r}: give a Granularity, such as Granularity((1,))"
            )
        if self.method not in get_args(Method):
            raise InputError(f"method={self.method!r}: give 'ema', 'max' or 'last'")
        if not (_is_number(self.decay) and 0.0 <= self.decay < 1.0):
            raise InputError(f"decay={self.decay!r}: give a number from 0 to below 1")
        if not (_is_number(self.margin) and abs(self.margin) <= _MOST_MARGIN):
            most = _MOST_MARGIN
            raise InputError(f"margin={self.margin!r}: give powers of two, from -{most} to {most}")
        whole = type(self.history) is int and self.history >= 1
        if not (whole and _is_number(self.anomaly) and self.anomaly > 1.0):
            raise InputError(
                f"history={self.history!r}, anomaly={self.anomaly!r}: give 1 update or more, and "
                "a ratio above 1"
            )

    def update(self, values: torch.Tensor) -> None:
        """Take in the amax of a tensor. NaN and infinities are counted, told, and left out.

        Raises:
            InputError: blocks do not divide the values, or there are as many as before.
        """
        amax, finite = amax_of(values, self.granularity)
        if self._average is not None:
            self._check_blocks(values)
            amax, finite = (each.reshape(self._average.shape) for each in (amax, finite))
            # A block without a finite element says nothing of its range.
            amax = torch.where(finite > 0, amax, self.amax.to(amax.device))
        self.updates += 1
        self._tell_nonfinite(values.numel() - int(finite.sum()))
        self._tell_anomaly(amax)
        if self._average is None or self._amaxes is None:
            self._average, self._amaxes = amax.clone(), amax[None].clone()
            return
        before = self._average.to(amax.device)
        mixed = self.decay * before + (1.0 - self.decay) * amax
        self._average = torch.where(before > 0, mixed, amax)
        self._amaxes = torch.cat([self._amaxes.to(amax.device), amax[None]])[-self.history :]

    @property
    def amax(self) -> torch.Tensor:
        """Return the amax of each block that the scales are made of, by `method`; fp32.

        Raises:
            InputError: nothing was seen yet.
        """
        if self._average is None or self._amaxes is None:
            raise InputError(
                "this scaler has seen no values: call update() before, or load a state"
            )
        if self.method == "ema":
            return self._average
        return self._amaxes.amax(0) if self.method == "max" else self._amaxes[-1]

    @property
    def scale(self) -> torch.Tensor:
        """Return the scales, fp32, one element per block along each axis of the values.

        Raises:
            InputError: nothing was seen yet.
        """
        amax = self.amax
        scale = amax * (2.0**self.margin / torch.finfo(self.dtype).max)
        limits = torch.finfo(torch.float32)
        return torch.where(amax > 0, scale.clamp(limits.tiny, limits.max), 1.0)

    def quantize(self, values: torch.Tensor) -> torch.Tensor:
        """Cast values by the scales known so far, saturating; see `casting.quantize`.

        Raises:
            InputError: nothing was seen yet, or the values do not fit the scales.
        """
        self._check_blocks(values)
        return quantize(values, self.scale.to(values.device), self.dtype)

    def dequantize(self, stored: torch.Tensor, dtype: torch.dtype = torch.float32) -> torch.Tensor:
        """Return stored * scale by the scales known so far.

        Raises:
            InputError: nothing was seen yet, or the values do not fit the scales.
        """
        self._check_blocks(stored)
        return dequantize(stored, self.scale.to(stored.device), dtype)

    def state_dict(self) -> dict[str, Any]:
        """Return options and state as tensors, numbers, texts and lists of them.

        `torch.save` writes it, and `torch.load(..., weights_only=True)` reads it.
        """
        return {
            **self._options(),
            "updates": self.updates,
            "nonfinite": self.nonfinite,
            "average": None if self._average is None else self._average.clone(),
            "amaxes": None if self._amaxes is None else self._amaxes.clone(),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take over a saved state of a scaler with the same options; all of it or nothing.

        Raises:
            InputError: it is of other options or shapes, or no scaler's.
        """
        mine = self.state_dict()
        if not isinstance(state, Mapping) or state.keys() != mine.keys():
            raise InputError("this is no scaler's state: give what Scaler.state_dict() returned")
        for name, value in self._options().items():
            if state[name] != value:
                raise InputError(
                    f"the state is of a scaler with {name}={shown(state[name])}, this one has "
                    f"{value!r}: make the scaler with the state's options, or begin anew"
                )
        average, amaxes = state["average"], state["amaxes"]
        if average is not None:
            blocks = tuple((average if self._average is None else self._average).shape)
            if not tuple(average.shape) == blocks == tuple(amaxes.shape[1:]):
                raise InputError(
                    f"the state has scales of shape {tuple(average.shape)}; this scaler has "
                    f"{blocks}: load it into a new one"
                )
            average, amaxes = average.detach().clone(), amaxes.detach().clone()
        self.updates, self.nonfinite = state["updates"], state["nonfinite"]
        self._average, self._amaxes = average, amaxes

    def _check_blocks(self, values: torch.Tensor) -> None:
        mine, shape = tuple(self.amax.shape), tuple(values.shape)
        if not values.numel():
            return
        pairs = zip(shape, self.granularity.sizes(shape), strict=True)
        counts = tuple(most // size for most, size in pairs)
        # Inputs of one layer differ in axes.
        if counts != mine and math.prod((*counts, *mine)) != 1:
            raise InputError(
                f"values of shape {shape} have {counts} scales per {self.granularity}, and this "
                f"scaler has {mine}: make one scaler for each shape of scales"
            )

    def _options(self) -> dict[str, Any]:
        return {
            "version": _VERSION,
            "dtype": str(self.dtype),
            "block": list(self.granularity.block),
            "method": self.method,
            "decay": self.decay,
            "history": self.history,
            "margin": self.margin,
        }

    def _tell_nonfinite(self, count: int) -> None:
        if count:
            self.nonfinite += count
            _warn(f"update {self.updates}: {count:,} NaN or infinite elements are in no scale")

    def _tell_anomaly(self, amax: torch.Tensor) -> None:
        if self._amaxes is None:
            return
        recent = self._amaxes.to(amax.device)
        mean = recent.sum(0) / (recent > 0).sum(0).clamp(min=1)
        ratio = torch.where(mean > 0, amax / mean, 0.0).flatten()
        worst = int(ratio.argmax())
        if ratio[worst] < self.anomaly:
            return
        largest, usual = (float(found.flatten()[worst]) for found in (amax, mean))
        _warn(
            f"update {self.updates}: amax {largest:.3g} is {largest / usual:.3g} times the recent "
            f"mean {usual:.3g}, in {int((ratio >= self.anomaly).sum()):,} blocks"
        )


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _warn(message: str) -> None:
    warnings.warn(message, ScaleWarning, stacklevel=user_stacklevel())
