"""Inputs of an accuracy run: distributions that are hard for narrow formats, and tensors of files.

- "random": what the module's `inputs` makes.
- "heavy-tailed": Student's t with 3 degrees of freedom, of the same RMS.
- "outlier-channels": random, with every 64th channel of the last axis, one at least, 20 times as
  large, as features of large language models are (Dettmers et al. 2022, LLM.int8(),
  arXiv:2208.07339).
- a file: .pt, .npy or .safetensors, of one tensor or of several by the names of inputs.

A distribution takes the place of the normal numbers that `inputs` draws, as it draws them: scales
that it draws otherwise stay, and statistics that it computes are those of the changed numbers.
Values beyond the largest finite number of an input's dtype become that number.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from asmtune.base.errors import InputError
from asmtune.base.text import user_stacklevel
from asmtune.core.failures import guarded
from asmtune.core.records.artifacts import Failure

if TYPE_CHECKING:
    from torch import Tensor

DISTRIBUTIONS: Final = ("random", "heavy-tailed", "outlier-channels")
SUFFIXES: Final = (".pt", ".npy", ".safetensors")

_FREEDOM: Final = 3
_EVERY: Final = 64
_LARGER: Final = 20.0
_NORMAL: Final = ("randn", "randn_like", "normal", "normal_")


class InputsWarning(UserWarning):
    """Tensors of a file hold NaN or infinities."""


def check_source(source: str) -> None:
    """Make sure that a source of inputs is a distribution or a file that can be read.

    Raises:
        InputError: it is neither, or there is no such file.
    """
    if source not in DISTRIBUTIONS and Path(source).suffix not in SUFFIXES:
        raise InputError(
            f"--inputs {source!r}: one of {', '.join(DISTRIBUTIONS)}, or a file that ends in "
            f"{', '.join(SUFFIXES)}"
        )
    if source not in DISTRIBUTIONS and not Path(source).is_file():
        raise InputError(f"--inputs {source}: no such file")


def distributed(make: Callable[[], dict[str, Any]], source: str) -> dict[str, Any]:
    """Make inputs with the values of a source; shapes, dtypes and devices stay.

    Raises:
        InputError: no normal numbers are drawn that a distribution could replace, a file cannot be
            read, or its tensors do not fit the inputs.
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
    if source not in DISTRIBUTIONS:
        own = {name: value for name, value in inputs.items() if isinstance(value, torch.Tensor)}
        inputs |= _placed(own, f"--inputs {source}", read_tensors(Path(source)))
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


def read_tensors(path: Path) -> dict[str, Tensor]:
    """Read the tensors of a file by name; a single one has the name "".

    Pickles are not run: .pt is read with `weights_only`, .npy without objects.

    Raises:
        InputError: it cannot be read, or holds something else than tensors.
    """
    import torch

    def load() -> Any:
        if path.suffix == ".pt":
            return torch.load(path, weights_only=True, map_location="cpu")
        if path.suffix == ".npy":
            import numpy as np

            return torch.from_numpy(np.load(path, allow_pickle=False))
        from safetensors.torch import load_file  # type: ignore[import-not-found,unused-ignore]

        return load_file(path)

    loaded = guarded("inputs", lambda: _dense(load()))
    if isinstance(loaded, Failure):
        line = loaded.detail.splitlines()[0][:200]
        if "No module named 'safetensors'" in line:
            line = "needs safetensors: pip install safetensors"
        elif path.suffix != ".safetensors" and "pickl" in line.lower():
            line = "not tensors alone; anything else in it is not run"
        raise InputError(f"--inputs {path}: cannot be read as {path.suffix} ({line})")
    tensors = loaded if isinstance(loaded, Mapping) else {"": loaded}
    if not tensors:
        raise InputError(f"--inputs {path}: holds no tensors")
    for name, value in tensors.items():
        if not isinstance(value, torch.Tensor):
            kind, place = type(value).__name__, f" at {name!r}" if name else ""
            raise InputError(
                f"--inputs {path}: expected a tensor, or tensors by name, got {kind}{place}"
            )
    return {str(name): value for name, value in tensors.items()}


def _dense(found: Any) -> Any:
    """Widen floats of all formats; raise for sparse, quantised, nested and meta tensors."""
    import torch

    if isinstance(found, torch.Tensor):
        found = found.detach().double() if found.is_floating_point() else found.detach()
        found.numpy()
    return {n: _dense(x) for n, x in found.items()} if isinstance(found, Mapping) else found


def _placed(
    own: Mapping[str, Tensor], where: str, tensors: Mapping[str, Tensor]
) -> dict[str, Tensor]:
    """Fit a file's tensors to the inputs of their names; a single one to the first."""
    if set(tensors) == {""} and own:
        tensors = {next(iter(own)): tensors[""]}
    for name, value in tensors.items():
        if name not in own:
            raise InputError(f"{where}: no input is called {name!r}; they are {', '.join(own)}")
        like = own[name]
        if value.shape != like.shape:
            raise InputError(
                f"{where}: {name} has shape {list(value.shape)}, and {list(like.shape)} "
                "follows from the shape: give the file's sizes as --shape"
            )
        if value.is_floating_point() != like.is_floating_point():
            raise InputError(f"{where}: {name} is {value.dtype}, not {like.dtype}")
        if count := int((~value.isfinite()).sum()):
            warnings.warn(
                f"{where}: {name} has {count:,} NaN or infinite elements; outputs that are so in "
                "the reference too enter no error",
                InputsWarning,
                stacklevel=user_stacklevel(),
            )
    return {name: _cast(value, own[name]) for name, value in tensors.items()}
