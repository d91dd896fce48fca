"""Where the tensors of a launch are: whether the GPU that launches can reach them.

PyTorch is looked up among the modules that are loaded: without it no argument is its tensor.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from asmtune.base.errors import InputError
from asmtune.base.text import shortened
from asmtune.core.dtypes import dtype_of


def check_places(kernel: str, arguments: Mapping[str, Any], *, strict: bool) -> None:
    """That the GPU can reach every tensor; where strict, that all are on the current one.

    Raises:
        InputError: a tensor of one element or more is in memory of the CPU that is not pinned,
            or where strict on another GPU than the one that Triton launches on.
    """
    device = _current_device()
    if device is None:
        return
    first: tuple[str, Any] | None = None
    for name, value in _tensors(arguments.items()):
        place = value.device
        if place.type == "cpu" and value.numel() and not value.is_pinned():
            raise InputError(
                f"kernel {kernel}: argument {name} is {shown(value)}: expected one on "
                f"cuda:{device}; move it there, {name}.to('cuda'), or pin its memory"
            )
        if place.type != "cuda" or not strict:
            continue
        first = first or (name, place)
        if place != first[1]:
            raise InputError(
                f"kernel {kernel}: argument {name} is {shown(value)}, and {first[0]} is on "
                f"{first[1]}: expected all on one device; move it, {name}.to('{first[1]}')"
            )
    if first is not None and first[1].index != device:
        raise InputError(
            f"kernel {kernel}: argument {first[0]} is on {first[1]}, and the current device "
            f"is cuda:{device}: expected the same; launch under torch.cuda.device({first[1].index})"
        )


def _tensors(items: Iterable[tuple[str, Any]]) -> Iterator[tuple[str, Any]]:
    """PyTorch's tensors among arguments, those in tuples, descriptors and wrappers too.

    What else has a `data_ptr` tells no device, and is its maker's to place.
    """
    kind = getattr(sys.modules.get("torch"), "Tensor", None)
    if kind is None:
        return
    for name, value in items:
        held = value if isinstance(value, kind) else getattr(value, "base", None)
        if isinstance(held, kind):
            yield name, held
        elif isinstance(value, tuple):
            yield from _tensors((f"{name}[{place}]", item) for place, item in enumerate(value))


def shown(value: Any) -> str:
    """A value in one short line; of a tensor no element is read."""
    if hasattr(value, "data_ptr"):
        shape, place = tuple(getattr(value, "shape", ())), getattr(value, "device", "no device")
        return f"a tensor of {dtype_of(value)} {shape} on {place}"
    return shortened(ascii(value))


def _current_device() -> int | None:
    """The index that Triton launches on; None where there is no GPU to launch on."""
    torch = sys.modules.get("torch")
    if torch is None or not torch.cuda.is_available():
        return None
    return int(torch.cuda.current_device())
