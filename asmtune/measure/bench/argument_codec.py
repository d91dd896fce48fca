"""Sends the arguments of a launch to another process: values as JSON, tensors in shared memory.

Values become JSON. A tensor becomes its layout and its position in a region of memory, whose bytes
are in a file that the processes share (`SharedArguments`). Two views of one storage stay two views
of one region, and a pointer keeps its alignment: a kernel is compiled for both.
"""

from __future__ import annotations

import importlib
import math
import mmap
import operator
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, fields, is_dataclass
from typing import Any, Final

from asmtune.base.errors import InputError
from asmtune.base.fingerprint import version_of
from asmtune.measure.memory import nameless_file


@dataclass(frozen=True)
class Opaque:
    """Stands in a child for a constexpr that cannot be sent, such as a `@triton.jit` function.

    Its value is part of the compiled code; a launch does not use it.
    """

    text: str

    def __repr__(self) -> str:
        return self.text


@dataclass
class StorageRange:
    """Holds the part of a storage that tensors cover, in absolute addresses.

    Attributes:
        first: address of the first byte.
        end: address after the last byte.
        device: PyTorch's type of its device, "cuda" or "cpu".
        pinned: whether the host's memory under it is page-locked.
        whole: the storage as bytes.
        at: position of its bytes in the file that children map.
    """

    first: int
    end: int
    device: str
    pinned: bool
    whole: Any = None
    at: int = 0

    @property
    def nbytes(self) -> int:
        """Return its size."""
        return self.end - self.first

    @property
    def content(self) -> Any:
        """Return its bytes, in place."""
        skipped = self.first - self.whole.data_ptr()
        return self.whole[skipped : skipped + self.nbytes]

    def to_json(self) -> dict[str, Any]:
        """Return what a child needs to place it."""
        return {
            "device": self.device,
            "pinned": self.pinned,
            "first": self.first,
            "bytes": self.nbytes,
            "at": self.at,
        }


@dataclass
class Packing:
    """Describes values as JSON and collects the memory under their tensors.

    Attributes:
        by_name: describes functions of Triton by module and name, and numbers that JSON lacks by
            text, for a process that comes later.
    """

    regions: dict[tuple[str, int], StorageRange] = field(default_factory=dict)
    by_name: bool = False

    def describe(self, value: Any, where: str) -> Any:
        """Describe a value as JSON.

        Args:
            value: a number, bool, string, None, tensor, tensor descriptor, constexpr, Triton
                dtype, Gluon layout, or a tuple or list of these.
            where: the argument that it is, or is part of, for the message.

        Raises:
            InputError: it is something else, or a tensor without memory.
        """
        if self.by_name and isinstance(value, float) and not math.isfinite(value):
            return {"float": repr(float(value))}
        if value is None or isinstance(value, int | float | str):
            return value
        if isinstance(value, tuple | list):
            items = [self.describe(item, where) for item in value]
            return {"tuple": items} if isinstance(value, tuple) else items
        described = self._scalar(value, where) or self._memory(value, where)
        if described is None:
            raise InputError(
                f"{where}: {type(value).__name__} {str(value)[:60]!r} cannot travel to a child "
                "process; pass tensors and numbers, or tune with isolate=False"
            )
        return described

    def _scalar(self, value: Any, where: str) -> dict[str, Any] | None:
        import numpy
        import triton.language as tl
        from triton import JITFunction

        if isinstance(value, tl.constexpr):
            return {"constexpr": self.describe(value.value, where)}
        if type(value) is tl.dtype:
            return {"dtype": value.name}
        if isinstance(value, numpy.generic):
            number = value.item()
            if isinstance(number, numpy.generic):  # a long double
                return None
            described = self.describe(number, where)
            return described if isinstance(described, dict) else {"scalar": described}
        if isinstance(value, JITFunction):
            name = f"{value.__module__}:{value.__qualname__}"
            return {"function": name} if self.by_name else {"opaque": repr(value)}
        return None

    def _memory(self, value: Any, where: str) -> dict[str, Any] | None:
        import torch
        from triton import TensorWrapper

        if isinstance(value, torch.Tensor):
            return {"tensor": self._tensor(value, where)}
        if isinstance(value, TensorWrapper):
            parts = {"base": value.base, "dtype": value.dtype}
            return {"wrapper": {name: self.describe(part, where) for name, part in parts.items()}}
        if not is_dataclass(value) or not type(value).__module__.startswith(_MODULES):
            return None
        parts = {f.name: self.describe(getattr(value, f.name), where) for f in fields(value)}
        name = f"{type(value).__module__}:{type(value).__qualname__}"
        return {"object": {"type": name, "parts": parts}}

    def _tensor(self, tensor: Any, where: str) -> dict[str, Any]:
        import torch

        if tensor.device.type not in ("cuda", "cpu") or tensor.layout != torch.strided:
            raise InputError(
                f"{where}: a {tensor.layout} tensor on {tensor.device} has no memory that could "
                "be sent to a child process; expected a strided one on a GPU"
            )
        return {
            "region": self._region(tensor) if tensor.numel() else None,
            "pointer": tensor.data_ptr(),
            "device": tensor.device.type,
            "dtype": str(tensor.dtype).removeprefix("torch."),
            "shape": list(tensor.shape),
            "strides": list(tensor.stride()),
        }

    def _region(self, tensor: Any) -> int:
        """Return the number of the region of a tensor's storage, extended to cover the tensor."""
        import torch

        first, storage = tensor.data_ptr(), tensor.untyped_storage()
        reach = sum((n - 1) * s for n, s in zip(tensor.shape, tensor.stride(), strict=True))
        end = first + (reach + 1) * tensor.element_size()
        key = (str(tensor.device), storage.data_ptr())
        new = StorageRange(first, end, tensor.device.type, tensor.is_pinned())
        region = self.regions.setdefault(key, new)
        region.first, region.end = min(region.first, first), max(region.end, end)
        if region.whole is None or region.whole.numel() < storage.nbytes():
            whole = torch.empty(0, dtype=torch.uint8, device=tensor.device)
            region.whole = whole.set_(storage)
        return list(self.regions).index(key)


_MODULES: Final = ("triton.tools.tensor_descriptor", "triton.experimental.gluon.")
"""Where the classes are of tensor descriptors, and of Gluon's layouts, which its own have."""


def describe_all(
    packing: Packing, values: Mapping[str, Any], constexprs: frozenset[str]
) -> dict[str, Any]:
    """Describe values by name as JSON; a constexpr that cannot be sent is replaced by its text.

    Raises:
        InputError: another value cannot be sent; names it.
    """
    described = {}
    for name, value in values.items():
        try:
            described[name] = packing.describe(value, f"argument {name}")
        except InputError:
            if name not in constexprs:
                raise
            described[name] = {"opaque": repr(value)}
    return described


@dataclass(frozen=True)
class SharedRegion:
    """Holds the bytes of a region in this process.

    Attributes:
        buffer: bytes that hold them.
        shift: added to an address in the original memory, gives the position in the buffer.
    """

    buffer: Any
    shift: int


def restore(value: Any, memory: Sequence[SharedRegion]) -> Any:
    """Restore a value from its JSON."""
    if isinstance(value, list):
        return [restore(item, memory) for item in value]
    if not isinstance(value, dict):
        return value
    ((kind, inner),) = value.items()
    if kind == "tuple":
        return tuple(restore(item, memory) for item in inner)
    if kind == "tensor":
        return _restore_tensor(inner, memory)
    if kind == "object":
        return _restore_object(inner, memory)
    return inner if kind == "scalar" else _restore_value(kind, inner, memory)


def _restore_tensor(inner: Mapping[str, Any], memory: Sequence[SharedRegion]) -> Any:
    import torch

    dtype, layout = getattr(torch, inner["dtype"]), (inner["shape"], inner["strides"])
    if inner["region"] is None:
        return torch.empty_strided(*layout, dtype=dtype, device=inner["device"])
    place = memory[inner["region"]]
    offset = (inner["pointer"] + place.shift) // dtype.itemsize
    storage = place.buffer.untyped_storage()
    return torch.empty(0, dtype=dtype, device=inner["device"]).set_(storage, offset, *layout)


def _restore_object(inner: Mapping[str, Any], memory: Sequence[SharedRegion]) -> Any:
    module, _, name = inner["type"].partition(":")
    parts = {key: restore(part, memory) for key, part in inner["parts"].items()}
    try:
        package = importlib.import_module(module) if module.startswith(_MODULES) else None
        return getattr(package, name)(**parts)
    except (ImportError, AttributeError, TypeError) as error:
        what = f"{inner['type']} is no layout or descriptor of triton"
        raise InputError(f"{what} {version_of('triton')}: record it again with this") from error


def _restore_value(kind: str, inner: Any, memory: Sequence[SharedRegion]) -> Any:
    import triton.language as tl
    from triton import TensorWrapper

    if kind == "opaque":
        return Opaque(inner)
    if kind == "float":
        return float(inner)
    if kind == "function":
        module, _, path = inner.partition(":")
        return operator.attrgetter(path)(importlib.import_module(module))
    if kind == "dtype":
        return tl.dtype(inner)
    if kind == "constexpr":
        return tl.constexpr(restore(inner, memory))
    return TensorWrapper(**{name: restore(part, memory) for name, part in inner.items()})


_ALIGNMENT: Final = 512  # of PyTorch's CUDA allocator; no specialisation asks for more


class SharedArguments:
    """Copies arguments into a file that any number of children map.

    Attributes:
        file: descriptor of the file that holds the bytes; children inherit it.
        nbytes: size of the file.
        touched: set by code that runs a user's function on the arguments in this process; `close`
            then restores their contents.

    Args:
        constexprs: names whose values need not be sent if they cannot.

    Raises:
        InputError: an argument cannot be sent; names it.
        MemoryShortError: there is no room for the bytes.
    """

    def __init__(
        self, arguments: Mapping[str, Any], constexprs: frozenset[str] = frozenset()
    ) -> None:
        packing = Packing()
        self._described = describe_all(packing, arguments, constexprs)
        self._regions = list(packing.regions.values())
        self.nbytes = 0
        for region in self._regions:
            region.at = self.nbytes
            self.nbytes += -(-region.nbytes // _ALIGNMENT) * _ALIGNMENT
        self.touched = False
        self.file = nameless_file(self.nbytes)
        with ExitStack() as undo:
            undo.callback(os.close, self.file)
            for region, held in self._pairs():
                held.copy_(region.content)
            undo.pop_all()

    def to_json(self) -> dict[str, Any]:
        """Return what `unpack_arguments` needs, except the bytes in the file."""
        return {
            "described": self._described,
            "regions": [region.to_json() for region in self._regions],
            "file": self.file,
            "nbytes": self.nbytes,
        }

    def close(self) -> None:
        """Close the file; restore the contents of the arguments first if they were touched."""
        try:
            if self.touched:
                for region, held in self._pairs():
                    region.content.copy_(held)
        finally:
            os.close(self.file)

    def _pairs(self) -> Iterator[tuple[StorageRange, Any]]:
        """Yield each region with its bytes in the file."""
        import torch

        if not self.nbytes:
            return
        mapped = torch.frombuffer(mmap.mmap(self.file, self.nbytes), dtype=torch.uint8)
        for region in self._regions:
            yield region, mapped[region.at : region.at + region.nbytes]


def unpack_arguments(shared: Mapping[str, Any]) -> dict[str, Any]:
    """Restore the arguments of `SharedArguments.to_json` in memory of this process.

    Tensors of a GPU are placed on this process's current one.
    """
    memory = []
    if shared["nbytes"]:
        import torch

        mapped = mmap.mmap(shared["file"], shared["nbytes"], access=mmap.ACCESS_COPY)
        source = torch.frombuffer(mapped, dtype=torch.uint8)
        for region in shared["regions"]:
            content = source[region["at"] : region["at"] + region["bytes"]]
            pinned = bool(region["pinned"])
            memory.append(placed(content, region["first"], region["device"], pinned=pinned))
    return {name: restore(value, memory) for name, value in shared["described"].items()}


def placed(content: Any, first: int, device: Any, *, pinned: bool) -> SharedRegion:
    """Copy bytes of an address to memory with the same address modulo the alignment."""
    import torch

    size = content.numel()
    buffer = torch.empty(size + _ALIGNMENT, dtype=torch.uint8, device=device, pin_memory=pinned)
    lead = (first - buffer.data_ptr()) % _ALIGNMENT
    buffer[lead : lead + size].copy_(content)
    return SharedRegion(buffer, lead - first)
