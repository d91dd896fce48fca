"""The memory under tensor arguments, reached through their storage, and copies of it.

Writing through the storage, not through the user's tensor, leaves autograd's version counter alone.
It is allowed on a leaf that requires a gradient, and on a tensor of inference mode.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Final, TypeVar

import numpy as np

from asmtune.core.dtypes import TORCH_NAMES, dtype_of, torch_dtype
from asmtune.core.failures import guarded
from asmtune.measure.checks.effects import tensor_parts
from asmtune.measure.checks.pages import NO_PAGES, PAGE, Numbers, PageCopy, Pages
from asmtune.measure.memory import allocated, has_room


@dataclass(frozen=True, eq=False)
class TensorArgument:
    """Describes the memory of one tensor argument that a kernel may reach.

    Attributes:
        name: the parameter's name, with the position of a tuple's part: `t.1`.
        storage: the memory that it is a view of.
        device: the device of that memory.
        dtype: the elements' type for comparisons: a complex number counts as two real ones along
            a new first axis, a bool as a byte, types that PyTorch cannot convert as integers.
        own_dtype: the elements' type as the user sees it.
        start: its first byte in the storage.
        sizes, strides: extents and strides of the view; axes that repeat the same memory have
            size 1.
        shape: extents as the user sees them.
    """

    name: str
    storage: Any
    device: Any
    dtype: Any
    own_dtype: Any
    start: int
    sizes: tuple[int, ...]
    strides: tuple[int, ...]
    shape: tuple[int, ...]

    @cached_property
    def stop(self) -> int:
        """Return the position after its last byte, gaps between elements included."""
        steps = zip(self.sizes, self.strides, strict=True)
        reach = sum((size - 1) * stride for size, stride in steps)
        return int(self.start + (reach + 1) * self.dtype.itemsize)

    @property
    def elements(self) -> int:
        """Return the number of elements."""
        return math.prod(self.sizes)

    def extent(self, piece: Sequence[slice]) -> tuple[int, int]:
        """Return the first byte of a part in the storage, and the one after its last."""
        width = self.dtype.itemsize
        steps = list(zip(piece, self.strides, strict=True))
        first = sum(part.start * step for part, step in steps)
        last = sum((part.stop - 1) * step for part, step in steps)
        return self.start + first * width, self.start + (last + 1) * width

    def view(self) -> Any:
        """Return a view of its elements, in place."""
        return self.over(self.storage, self.start, self.device)

    def over(self, storage: Any, start: int, device: Any) -> Any:
        """Return a view of other memory with the same layout."""
        import torch

        place = start // self.dtype.itemsize
        empty = torch.empty(0, dtype=self.dtype, device=device)
        return empty.set_(storage, place, self.sizes, self.strides)

    def elements_of(self, values: Any, *, wide: bool = False) -> Any:
        """Convert a tensor of the argument's shape to elements laid out as `view` has them.

        With `wide`, floats keep their own dtype, which may be wider than the argument's.
        """
        import torch

        values = values.detach()
        wide = wide and values.is_floating_point() and self.own_dtype == self.dtype
        if not wide:
            values = values.to(self.own_dtype)
        for axis, size in enumerate(self.sizes[len(self.sizes) - len(self.shape) :]):
            values = values.narrow(axis, 0, size)
        if values.is_complex():
            values = torch.view_as_real(values.resolve_conj()).movedim(-1, 0)
        return values if wide or values.dtype == self.dtype else values.view(self.dtype)


def tensor_arguments(arguments: Mapping[str, Any]) -> tuple[list[TensorArgument], list[str]]:
    """Return a launch's tensors, and the names of those that are not PyTorch's.

    Tensors without elements are left out.
    """
    tensors, foreign = [], []
    for name, value in tensor_parts(arguments).items():
        tensor = _tensor_argument(name, value)
        if tensor is None:
            foreign.append(name)
        elif tensor.elements:
            tensors.append(tensor)
    return tensors, foreign


def _tensor_argument(name: str, value: Any) -> TensorArgument | None:
    import torch

    tensor = value if isinstance(value, torch.Tensor) else getattr(value, "base", None)
    if not isinstance(tensor, torch.Tensor):
        return None
    dtype, width = tensor.dtype, tensor.dtype.itemsize
    named = dtype_of(value)
    if named in TORCH_NAMES and torch_dtype(named).itemsize == width:
        dtype = torch_dtype(named)  # a reinterpreted tensor's own type
    storage, start = tensor.untyped_storage(), int(tensor.storage_offset()) * width
    shape, strides = _layout(value, tensor, (storage.nbytes() - start) // width)
    sizes = tuple(
        1 if step == 0 and size else size for size, step in zip(shape, strides, strict=True)
    )
    compared = _compare(dtype)
    if dtype.is_complex:
        sizes, strides = (2, *sizes), (1, *(2 * step for step in strides))
    return TensorArgument(
        name, storage, tensor.device, compared, dtype, start, sizes, strides, shape
    )


def _layout(value: Any, tensor: Any, room: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return extents and strides: a descriptor's own if they fit in the memory from its start."""
    parts = getattr(value, "shape", None), getattr(value, "strides", None)
    if value is not tensor and all(isinstance(part, list | tuple) for part in parts):
        shape, strides = (tuple(int(extent) for extent in part or ()) for part in parts)
        reach = sum((size - 1) * step for size, step in zip(shape, strides, strict=False))
        if len(shape) == len(strides) and min(shape, default=1) > 0 and reach < room:
            return shape, strides
    return tuple(tensor.shape), tuple(tensor.stride())


def _compare(dtype: Any) -> Any:
    """Return the dtype that elements are compared as."""
    import torch

    if dtype == torch.bool:
        return torch.uint8
    if dtype.is_complex:
        return dtype.to_real()
    is_float = dtype.is_floating_point and dtype != getattr(torch, "float4_e2m1fn_x2", None)
    return dtype if is_float else integers(dtype)


def integers(dtype: Any) -> Any:
    """Return the integer dtype of a dtype's width; uint8 stays unsigned."""
    import torch

    by_width = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
    return dtype if dtype == torch.uint8 else by_width[dtype.itemsize]


_ALIGNMENT: Final = 16  # bytes; no element is wider


@dataclass(eq=False)
class MemoryRegion:
    """A range of one storage that tensors share, with the gaps between their elements.

    Attributes:
        storage, device: the memory.
        start, stop: its first byte, and the one after its last.
        tensors: the arguments inside.
    """

    storage: Any
    device: Any
    start: int
    stop: int
    tensors: list[TensorArgument] = field(default_factory=list)

    def contents(self) -> Any:
        """Return a new view of its bytes, so that no mode of PyTorch sticks to it."""
        import torch

        empty = torch.empty(0, dtype=torch.uint8, device=self.device)
        return empty.set_(self.storage, self.start, (self.stop - self.start,), (1,))

    @property
    def has_gaps(self) -> bool:
        """Return whether it holds bytes that are not elements of a tensor that spans it."""
        length = self.stop - self.start
        return not any(tensor.elements * tensor.dtype.itemsize == length for tensor in self.tensors)


def regions_of(tensors: Iterable[TensorArgument]) -> list[MemoryRegion]:
    """Return the smallest ranges that cover all tensors; ranges that overlap are merged."""
    regions: list[MemoryRegion] = []
    ordered = sorted(tensors, key=lambda tensor: (tensor.storage.data_ptr(), tensor.start))
    for tensor in ordered:
        last = regions[-1] if regions else None
        same = last is not None and last.storage.data_ptr() == tensor.storage.data_ptr()
        if last is None or not same or tensor.start >= last.stop:
            last = MemoryRegion(tensor.storage, tensor.device, tensor.start, tensor.stop)
            regions.append(last)
        if tensor.storage.nbytes() > last.storage.nbytes():
            last.storage = tensor.storage  # the same memory, and more of it
        last.stop = max(last.stop, tensor.stop)
        last.tensors.append(tensor)
    return regions


class RegionCopy:
    """Copies a region's contents, to host memory if the device has no room.

    It knows which pages runs have changed, and can show what the default config leaves in the
    place of the contents: then both take one copy, and their few different pages.

    Args:
        region: the memory.
        leave: bytes of the device that shall stay free; where that cannot be, the copy is in host
            memory.

    Attributes:
        bytes: the contents at that time.
        on_host: whether the copy is in host memory because the device has no room.
        found: the pages that differed when the memory was looked at last.
    """

    def __init__(self, region: MemoryRegion, leave: int = 0) -> None:
        self.region = region
        # Tensors keep their alignment, whatever the region's first byte.
        self._pad = region.start % _ALIGNMENT
        length = self._pad + region.stop - region.start
        whole, self.on_host = allocated(length, region.device, leave)
        self.bytes = whole[self._pad :]
        self.bytes.copy_(region.contents())
        words = region.storage.data_ptr() % 8 == 0
        self.pages = Pages.of(region.start, region.stop, words=words)
        self.found = self._changed = NO_PAGES
        self._own: PageCopy | None = None
        self._output: tuple[PageCopy, PageCopy] | None = None
        self._shows_output = False

    def restore(self) -> None:
        """Restore these contents to the region, whatever has changed there; waits."""
        self._hide()
        contents = self.region.contents()

        def by_pages() -> None:
            self.pages.copy(self.pages.differing(contents, self.bytes), self.bytes, contents)

        if guarded("restore", by_pages) is not None:
            contents.copy_(self.bytes)  # which takes no memory, where none was left

    def put_back(self) -> None:
        """Restore what runs were seen to change, without waiting for the device."""
        if self._own is None:
            self.region.contents().copy_(self.bytes)
        else:
            self._own.write(self.region.contents())

    def look(self) -> None:
        """Find the pages that differ now, after a run."""
        self.found = self.pages.differing(self.region.contents(), self.bytes)

    def learn(self) -> None:
        """Let `put_back` restore the pages found last, too."""
        known = np.union1d(self._changed, self.found)
        if self._own is None or len(known) > len(self._changed):
            self._own = self._pages_of(known, self.bytes)
        self._changed = known

    def output(self) -> RegionCopy:
        """Copy what a run has left: beside these contents if that takes little, else whole."""
        under = self._pages_of(self.found, self.bytes)
        over = under and self._pages_of(self.found, self.region.contents())
        if under is None or over is None:
            return RegionCopy(self.region)
        self._output = under, over
        return self

    @contextmanager
    def showing_output(self) -> Iterator[Numbers]:
        """Let `bytes` hold what a run has left; give the pages where the region differs from it."""
        contents, among = self.region.contents(), None
        if self._output is not None:
            self._shows_output = True
            over = self._output[1]
            over.write(self.bytes)
            among = np.union1d(over.numbers, self.found)
        try:
            yield self.pages.differing(contents, self.bytes, among)
        finally:
            self._hide()

    def changes(self, tensor: TensorArgument) -> bool:
        """Return whether the run whose output is kept beside the contents changed a tensor."""
        return self._output is None or self.pages.hold(
            self._output[0].numbers, tensor.start, tensor.stop
        )

    def view(self, tensor: TensorArgument) -> Any:
        """Return a tensor's elements as they were."""
        start = self._pad + tensor.start - self.region.start
        return tensor.over(self.bytes.untyped_storage(), start, self.bytes.device)

    def _hide(self) -> None:
        # Again after an interrupt in the middle of it: the contents are the user's.
        if self._shows_output and self._output is not None:
            self._output[0].write(self.bytes)
            self._shows_output = False

    def _pages_of(self, numbers: Numbers, contents: Any) -> PageCopy | None:
        """Copy pages to the region's device; None if they are many, or it has no room."""
        device = self.region.device
        if not self.pages.few(numbers) or not has_room(device, len(numbers) * PAGE):
            return None
        return PageCopy(self.pages, numbers, contents, device)


def synchronize(tensors: Iterable[TensorArgument]) -> None:
    """Wait until no kernel can touch the tensors' memory any more.

    A GPU may write pinned host memory long after a launch has returned, so this waits for the
    current device if a tensor is on the host.
    """
    import torch

    devices = {tensor.device for tensor in tensors}
    if not torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        return
    for device in devices:
        torch.cuda.synchronize(None if device.type == "cpu" else device)


T = TypeVar("T")

_MOST_INTERRUPTS: Final = 8  # a GPU that hangs never ends the work


def completed(work: Callable[[], T]) -> T:
    """Do work that may be begun again to its end though Ctrl-C comes; raise that afterwards.

    The first Ctrl-C ends a search, and a second one comes while arguments are restored.
    """
    interrupts: list[KeyboardInterrupt] = []
    while len(interrupts) < _MOST_INTERRUPTS:
        try:
            result = work()
        except KeyboardInterrupt as error:
            interrupts.append(error)
        else:
            if not interrupts:
                return result
            break
    raise interrupts[0]


@contextmanager
def preserved(values: Iterable[Any]) -> Iterator[Callable[[], None]]:
    """Restore the contents of every tensor among `values` at the end, and where that is called.

    For code that may write any of them, such as a config's `pre_hook`; an `OutputChecker` copies
    only what the IR writes. Memory between the elements of a view is restored too.
    """
    tensors, _ = tensor_arguments({str(place): value for place, value in enumerate(values)})
    synchronize(tensors)
    copies = [RegionCopy(region) for region in regions_of(tensors)]

    def restore() -> None:
        synchronize(tensors)
        for copy in copies:
            copy.restore()

    try:
        yield restore
    finally:
        completed(restore)
