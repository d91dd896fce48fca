"""Ranges of memory that arguments share, and copies of them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Final

from asmtune.measure.checks.tensors import Slot

_ALIGNMENT: Final = 16  # bytes; no element is wider
_HEADROOM: Final = 1 << 30  # bytes of the device left free for kernels' and checks' own use


@dataclass(eq=False)
class SharedStorage:
    """A range of one storage that slots share, the gaps between their elements included.

    Attributes:
        storage, device: the memory.
        start, stop: its first byte, and the one after its last.
        slots: those inside.
    """

    storage: Any
    device: Any
    start: int
    stop: int
    slots: list[Slot] = field(default_factory=list)

    def contents(self) -> Any:
        """Its bytes, in place; made anew, so that no mode of PyTorch sticks to them."""
        import torch

        empty = torch.empty(0, dtype=torch.uint8, device=self.device)
        return empty.set_(self.storage, self.start, (self.stop - self.start,), (1,))

    @property
    def has_gaps(self) -> bool:
        """Whether it holds bytes that are not an element of the one slot that spans it."""
        length = self.stop - self.start
        return not any(slot.elements * slot.dtype.itemsize == length for slot in self.slots)


def regions_of(slots: Iterable[Slot]) -> list[SharedStorage]:
    """The least ranges that cover all slots, those that meet made one."""
    found: list[SharedStorage] = []
    ordered = sorted(slots, key=lambda slot: (slot.storage.data_ptr(), slot.start))
    for slot in ordered:
        last = found[-1] if found else None
        same = last is not None and last.storage.data_ptr() == slot.storage.data_ptr()
        if last is None or not same or slot.start >= last.stop:
            last = SharedStorage(slot.storage, slot.device, slot.start, slot.stop)
            found.append(last)
        if slot.storage.nbytes() > last.storage.nbytes():
            last.storage = slot.storage  # the same memory, of which this one knows more
        last.stop = max(last.stop, slot.stop)
        last.slots.append(slot)
    return found


class Copy:
    """What a region held when this was made; in host memory where the device has no room.

    Attributes:
        region: the region.
        bytes: its contents then.
        on_host: whether they are kept in the host's memory for want of room.
    """

    def __init__(self, region: SharedStorage) -> None:

        self.region = region
        # Slots keep their alignment, whatever is the region's first byte.
        self._pad = region.start % _ALIGNMENT
        length = self._pad + region.stop - region.start
        whole, self.on_host = _allocated(length, region.device)
        self.bytes = whole[self._pad :]
        self.bytes.copy_(region.contents())

    def restore(self) -> None:
        """Gives the region these contents again."""
        self.region.contents().copy_(self.bytes)

    def view(self, slot: Slot) -> Any:
        """A slot's elements as they were."""
        start = self._pad + slot.start - self.region.start
        return slot.over(self.bytes.untyped_storage(), start, self.bytes.device)


def _allocated(length: int, device: Any) -> tuple[Any, bool]:
    """So many bytes, and whether they lie on the host because the device has no room."""
    import torch

    if _has_room(device, length):
        try:
            return torch.empty(length, dtype=torch.uint8, device=device), False
        except torch.OutOfMemoryError:
            pass  # free, but not in one piece
    return torch.empty(length, dtype=torch.uint8, device="cpu"), True


def _has_room(device: Any, length: int) -> bool:
    """Whether a device can hold so many bytes more, and still run kernels and comparisons."""
    import torch

    if device.type != "cuda":
        return True
    free, _ = torch.cuda.mem_get_info(device)
    cached = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
    return length + _HEADROOM <= free + cached


def settle(slots: Iterable[Slot]) -> None:
    """Waits until no kernel can touch the slots' memory any more.

    A GPU may write pinned host memory long after a launch has returned, so that the current
    device is waited for where a tensor lies on the host.
    """
    import torch

    devices = {slot.device for slot in slots}
    if not torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        return
    for device in devices:
        torch.cuda.synchronize(None if device.type == "cpu" else device)
