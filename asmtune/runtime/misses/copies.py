"""Copies of a launch's arguments, for a tuning that goes on while the program uses its own."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from asmtune.base.errors import InputError
from asmtune.measure.bench.argument_codec import Packing, SharedRegion, StorageRange, restore

_ALIGNMENT: Final = 512  # of PyTorch's CUDA allocator; no specialisation asks for more
_MEMORY: Final = frozenset({"tensor", "wrapper", "descriptor"})


def copied(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Arguments whose tensors are copies: views of one storage stay views of one copy.

    A pointer stays as aligned as it was. What holds no tensor that is known is itself.

    Raises:
        torch.OutOfMemoryError: the device has no room.
    """
    packing = Packing()
    described: dict[str, Any] = {}
    for name, value in arguments.items():
        try:
            form = packing.describe(value, f"argument {name}")
        except InputError:
            continue  # the process that times refuses it, with the same message
        if _has_memory(form):
            described[name] = form
    memory = [_copy(region) for region in packing.regions.values()]
    return {**arguments, **{name: restore(form, memory) for name, form in described.items()}}


def _has_memory(form: Any) -> bool:
    if isinstance(form, list | tuple):
        return any(_has_memory(item) for item in form)
    if not isinstance(form, dict):
        return False
    return any(kind in _MEMORY or _has_memory(inner) for kind, inner in form.items())


def _copy(region: StorageRange) -> SharedRegion:
    import torch

    whole, size = region.whole, region.end - region.first
    skipped = region.first - whole.data_ptr()
    buffer = torch.empty(
        size + _ALIGNMENT, dtype=torch.uint8, device=whole.device, pin_memory=region.pinned
    )
    lead = (region.first - buffer.data_ptr()) % _ALIGNMENT
    buffer[lead : lead + size].copy_(whole[skipped : skipped + size])
    return SharedRegion(buffer, lead - region.first)
