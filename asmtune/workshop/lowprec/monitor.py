"""`Monitor`: watches the layers of a model in production, and falls back to 16 bits."""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Self

import torch
from torch import nn

from asmtune.base.errors import InputError
from asmtune.base.text import user_stacklevel
from asmtune.workshop.lowprec.casting import scaled
from asmtune.workshop.lowprec.fp8_linear import Fp8Linear
from asmtune.workshop.lowprec.layers import check_module, first_floats
from asmtune.workshop.lowprec.scaler import ScaleWarning


@dataclass
class LayerCounts:
    """Counts what a monitor has seen of one layer's outputs.

    Attributes:
        calls, checked: calls, and those of them whose output was looked at.
        nonfinite: outputs with NaN or infinity although all inputs are finite.
        outliers: outputs whose amax is `ratio` times the recent mean or more, and inputs of an
            `Fp8Linear` whose amax is `ratio` times what its scales reach or more, and saturate.
        drops: outputs whose amax is the recent mean over `ratio` or less, such as all zeros.
        mean: recent mean of amax (exponential, weight of the past 0.9); None before the first.
        fell_back: the call after which the layer was replaced; None if it was not.
    """

    calls: int = 0
    checked: int = 0
    nonfinite: int = 0
    outliers: int = 0
    drops: int = 0
    mean: float | None = None
    fell_back: int | None = None


class Monitor:
    """Watches layers of a model by hooks, and replaces those that fail by their 16-bit versions.

    An output with NaN or infinity is computed again by the 16-bit layer, so that it goes no
    further. After `patience` events of any kind a layer is replaced for good, with a warning. A
    look at an output on a GPU waits for it: with `every` only each n-th call is looked at.

    Args:
        model: the model in low precision, changed in place.
        fallback: a model of the same module names in 16 bits, whose layers take over.
        names: layers to watch.
        every: calls of a layer from one look to the next.
        patience: events after which a layer is replaced.
        ratio: of amax and its recent mean from which it is an outlier, or a drop.

    Raises:
        InputError: a model is no module or takes no hooks, a name is in one of them only, a layer's
            dtypes differ, or a number is too small.
    """

    def __init__(
        self,
        model: nn.Module,
        fallback: nn.Module,
        names: Sequence[str],
        *,
        every: int = 1,
        patience: int = 3,
        ratio: float = 10.0,
    ) -> None:
        check_module("Monitor: model", model)
        check_module("Monitor: fallback", fallback)
        if every < 1 or patience < 1 or not ratio > 1:
            raise InputError(
                f"every={every}, patience={patience}, ratio={ratio}: give 1, 1 and above 1 at least"
            )
        modules = dict(model.named_modules(remove_duplicate=False))
        others = dict(fallback.named_modules(remove_duplicate=False))
        for name in names:
            if name not in modules or name not in others or not name:
                raise InputError(f"Monitor: {name!r} is no module of both models")
            biases = (getattr(of[name], "bias", None) for of in (modules, others))
            dtypes = [str(x.dtype) for x in biases if isinstance(x, torch.Tensor)]
            if isinstance(modules[name], Fp8Linear) and len({*dtypes}) > 1:
                raise InputError(f"Monitor: {name!r} is {', and in fallback= '.join(dtypes)}")
        self.counts = {name: LayerCounts() for name in names}
        self._model, self._others = model, {name: others[name] for name in names}
        self._every, self._patience, self._ratio = every, patience, ratio
        self._handles = {
            name: modules[name].register_forward_hook(partial(self._look, name), with_kwargs=True)
            for name in names
        }

    def close(self) -> None:
        """Remove the hooks; layers that were replaced stay so."""
        for handle in self._handles.values():
            handle.remove()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _look(
        self, name: str, layer: nn.Module, args: Any, kwargs: dict[str, Any], output: Any
    ) -> Any:
        """Count an output; return another in its place if it is not finite."""
        counts = self.counts[name]
        counts.calls += 1
        value = None if (counts.calls - 1) % self._every else first_floats(output)
        if value is None or not value.numel():
            return None
        counts.checked += 1
        amax = float(value.detach().abs().amax())  # NaN and infinity show in it
        if amax == amax and amax != float("inf"):
            saturates = isinstance(layer, Fp8Linear) and self._saturates(layer, *args, **kwargs)
            self._weigh(counts, amax, saturates)
            again = None
        elif all(_is_finite(value) for value in (*args, *kwargs.values())):
            counts.nonfinite += 1
            again = self._others[name](*args, **kwargs)
        else:
            return None  # what came in is at fault
        if counts.nonfinite + counts.outliers + counts.drops >= self._patience:
            self._replace(name, counts)
        return again

    def _saturates(self, layer: Fp8Linear, values: torch.Tensor) -> bool:
        most = self._ratio * torch.finfo(layer.scaler.dtype).max
        scale = layer.scaler.scale.to(values.device)
        return bool((scaled(values.detach(), scale).abs() >= most).any())

    def _weigh(self, counts: LayerCounts, amax: float, saturates: bool) -> None:
        usual = counts.mean or math.nan  # from which nothing is far
        counts.outliers += saturates or amax >= self._ratio * usual
        counts.drops += amax <= usual / self._ratio
        counts.mean = 0.9 * usual + 0.1 * amax if counts.mean else amax

    def _replace(self, name: str, counts: LayerCounts) -> None:
        self._handles[name].remove()
        watched = self._model.get_submodule(name)
        for alias, module in list(self._model.named_modules(remove_duplicate=False)):
            if module is watched:
                self._model.set_submodule(alias, self._others[name])
        counts.fell_back = counts.calls
        warnings.warn(
            f"{name} falls back to 16 bits after {counts.calls:,} calls: {counts.nonfinite} outputs"
            f" with NaN or infinity, {counts.outliers} amax outliers, {counts.drops} drops",
            ScaleWarning,
            stacklevel=user_stacklevel("torch."),
        )


def _is_finite(value: Any) -> bool:
    if isinstance(value, torch.Tensor) and value.is_floating_point():
        return bool(value.isfinite().all())
    return True
