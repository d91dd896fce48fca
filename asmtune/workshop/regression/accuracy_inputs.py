"""Inputs of an accuracy run: distributions that are hard for narrow formats.

- "random": what the module's `inputs` makes.
- "heavy-tailed": Student's t with 3 degrees of freedom, of the same RMS.
- "outlier-channels": random, with every 64th channel of the last axis, one at least, 20 times as
  large, as features of large language models are (Dettmers et al. 2022, LLM.int8(),
  arXiv:2208.07339).

A distribution takes the place of the normal numbers that `inputs` draws, as it draws them: scales
that it draws otherwise stay, and statistics that it computes are those of the changed numbers.
Values beyond the largest finite number of an input's dtype become that number.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any, Final

from asmtune.base.errors import InputError

if TYPE_CHECKING:
    from torch import Tensor

DISTRIBUTIONS: Final = ("random", "heavy-tailed", "outlier-channels")

_FREEDOM: Final = 3
_EVERY: Final = 64
_LARGER: Final = 20.0
_NORMAL: Final = ("randn", "randn_like", "normal", "normal_")


def check_source(source: str) -> None:
    """Make sure that a source of inputs is a distribution.

    Raises:
        InputError: it is none.
    """
    if source not in DISTRIBUTIONS:
        raise InputError(
            f"--inputs {source!r}: one of {', '.join(DISTRIBUTIONS)}; tensors of your own come "
            "from a file's inputs(shape, dtype, device)"
        )


def distributed(make: Callable[[], dict[str, Any]], source: str) -> dict[str, Any]:
    """Make inputs with the values of a source; shapes, dtypes and devices stay.

    Raises:
        InputError: no normal numbers are drawn that a distribution could replace.
    """
    import torch
    from torch.overrides import TorchFunctionMode

    changes = {"heavy-tailed": _heavy_tailed, "outlier-channels": _outliers}
    drawn = []

    class Drawing(TorchFunctionMode):
        def __torch_function__(self, call: Any, _: Any, args: Any = (), kwargs: Any = None) -> Any:
            result, name = call(*args, **(kwargs or {})), getattr(call, "__name__", "")
            with torch.no_grad():
                if name in _NORMAL and result.is_floating_point() and result.numel():
                    drawn.append(name)
                    result.copy_(_cast(changes[source](result.double()), result))
                elif name in ("to", "half") and result.dtype != args[0].dtype:
                    result.copy_(_cast(args[0], result))
            return result

    with Drawing() if source in changes else nullcontext():
        inputs = make()
    if source in changes and not drawn:
        raise InputError(f"--inputs {source}: the inputs draw no normal numbers by torch.randn")
    return inputs


def _heavy_tailed(x: Tensor) -> Tensor:
    """Draw Student's t as a normal number over the root of a mean of 3 squares of others."""
    import torch

    squares = torch.stack([torch.randn_like(x).square() for _ in range(_FREEDOM)])
    drawn = torch.randn_like(x) / squares.mean(0).sqrt()
    # The variance of t is freedom / (freedom - 2).
    return drawn * (x.square().mean() * (_FREEDOM - 2) / _FREEDOM).sqrt()


def _outliers(x: Tensor) -> Tensor:
    if x.dim():
        x[..., _EVERY // 2 % x.shape[-1] :: _EVERY] *= _LARGER
    return x


def _cast(x: Tensor, like: Tensor) -> Tensor:
    """Convert to the dtype and device of another tensor; finite numbers stay finite."""
    import torch

    if like.is_floating_point() and x.dtype != like.dtype:
        x, most = x.double(), torch.finfo(like.dtype).max  # FP8 has no arithmetic
        x = x.where(x.isinf(), x.clamp(-most, most))
    return x.to(like.device, like.dtype)
