"""`CallTrace`: notes what a host function allocates, views and launches in one call."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

import torch

from asmtune.runtime.launch import plain
from asmtune.triton_api.launching import (
    current_stream,
    descriptor_types,
    has_allocator,
    launch_functions,
)
from asmtune.triton_api.tensors import TorchDispatchMode, is_mutating, storage_of, tree_leaves

_ALIGNMENT: Final = 512  # of memory that PyTorch allocates
_ARGUMENT, _OUTPUT, _SCRATCH = range(3)  # the same numbers as in `native/calls.c`
_MOST_OUTPUTS: Final = 32  # the same

_aten: Any = torch.ops.aten
_ALLOCATIONS: Final = frozenset(
    {
        _aten.empty.memory_format,
        _aten.empty_strided.default,
        _aten.empty_like.default,
        _aten.new_empty.default,
        _aten.new_empty_strided.default,
    }
)

_PLAIN: Final = frozenset({bool, int, float, str, type(None), torch.dtype})

_persistent: Final[dict[int, torch.Tensor]] = {}
_block_setters: Final[list[Callable[..., None] | None]] = [None]


def keep_alive(*tensors: torch.Tensor) -> None:
    """Declare tensors that prepared calls may go on using: they are never freed or replaced.

    A call that uses one takes the function's own path while a CUDA graph is captured.
    """
    _persistent.update((id(tensor), tensor) for tensor in tensors)


def sets_blocks(hook: Callable[..., None]) -> Callable[..., None]:
    """Declare that a config's `pre_hook` does nothing but set blocks and layouts of descriptors.

    A prepared call goes without it: its launches have the blocks already.
    """
    _block_setters.append(hook)
    return hook


def needs_gradient(value: Any) -> bool:
    """Return whether a value is a tensor that requires a gradient."""
    return isinstance(value, torch.Tensor) and value.requires_grad


class _Origin(NamedTuple):
    """The argument or the allocation that a tensor is, or is a view of."""

    kind: int
    number: int
    base: torch.Tensor


class _Launch(NamedTuple):
    launcher: Any
    plan: Any
    grid: tuple[int, int, int]
    values: tuple[Any, ...]


class _Described(NamedTuple):
    """A tensor descriptor as it was launched: a program may change it afterwards."""

    base: torch.Tensor
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    padded: bool

    @classmethod
    def of(cls, value: Any) -> _Described:
        """Take a descriptor's values."""
        padded = value.padding == "nan"
        return cls(value.base, tuple(value.shape), tuple(value.strides), padded)


class _Refusal(Exception):  # noqa: N818 - no error: the function is called each time
    """Says what a prepared call cannot do again."""


class CallTrace(TorchDispatchMode):  # type: ignore[no-untyped-call] # PyTorch's has no types
    """A mode that notes one call of a host function; see `call`.

    Attributes:
        reason: why the call cannot be prepared, as far as the function has come; else None.
    """

    def __init__(self, part: Any, arguments: tuple[Any, ...]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._part, self._arguments = part, arguments
        self.reason: str | None = None
        self._launches: list[_Launch] = []
        self._allocated: list[torch.Tensor] = []
        self._origins: dict[int, _Origin] = {}
        self._alive: list[torch.Tensor] = []  # else another tensor may get the id of one
        self._thread = threading.get_ident()
        self._device = current_stream().device()
        self._is_paused = False
        for index, value in enumerate(arguments):
            if isinstance(value, torch.Tensor):
                self._add(value, _Origin(_ARGUMENT, index, value))

    def __enter__(self) -> CallTrace:
        """Hear of operations of this thread, of planned launches, and of Triton's own."""
        self._own = [(owner, name, getattr(owner, name)) for owner, name in launch_functions()]
        for owner, name, own in self._own:
            setattr(owner, name, self._refusing(own))
        self._part.observe(self)
        plain.observer = self
        super().__enter__()  # type: ignore[no-untyped-call]
        return self

    def __exit__(self, *error: Any) -> None:
        super().__exit__(*error)  # type: ignore[no-untyped-call]
        plain.observer = None
        self._part.observe(None)
        for owner, name, own in self._own:
            setattr(owner, name, own)

    def _refusing(self, own: Callable[..., Any]) -> Callable[..., Any]:
        def launch(kernel: Any, *args: Any, **kwargs: Any) -> Any:
            if threading.get_ident() == self._thread:
                name = getattr(kernel, "__name__", getattr(kernel, "name", kernel))
                self._refuse(f"a launch of {name} by Triton")
            return own(kernel, *args, **kwargs)

        return launch

    def __torch_dispatch__(
        self, func: Any, _: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        result = func(*args, **(kwargs or {}))
        if self.reason is None and not self._is_paused:
            self._note(func, (args, kwargs), result)
        return result

    def _refuse(self, reason: str) -> None:
        if not self._is_paused:
            self.reason = self.reason or reason

    def _add(self, tensor: torch.Tensor, origin: _Origin) -> None:
        self._alive.append(tensor)
        self._origins.setdefault(id(tensor), origin)

    def _note(self, func: Any, inputs: Any, result: Any) -> None:
        results = tree_leaves(result)
        if is_mutating(func) or not all(isinstance(r, torch.Tensor) for r in results):
            return self._refuse(f"operation {func}")
        if any(leaf.layout is not torch.strided for leaf in results):
            return self._refuse(f"operation {func}")
        if func in _ALLOCATIONS:
            if result.is_meta or result.get_device() != self._device:
                return self._refuse(f"memory on {result.device}")
            self._add(result, _Origin(_OUTPUT, len(self._allocated), result))
            self._allocated.append(result)
            return None
        sources = {
            storage_of(leaf): self._origins[id(leaf)]
            for leaf in tree_leaves(inputs)
            if isinstance(leaf, torch.Tensor) and id(leaf) in self._origins
        }
        for tensor in results:
            origin = sources.get(storage_of(tensor))
            if origin is None or (origin.kind == _ARGUMENT and _is_absolute(func, *inputs)):
                return self._refuse(f"operation {func}")
            self._add(tensor, origin)
        return None

    def unheard(self, call: Callable[..., Any], *values: Any) -> None:
        """Call an alternative: its operations and launches are not the function's."""
        if threading.get_ident() != self._thread:
            call(*values)
            return
        before, self._is_paused = self._is_paused, True
        try:
            call(*values)
        finally:
            self._is_paused = before

    def __call__(self, launcher: Any, plan: Any, grid: Any, values: Any) -> None:
        """Note a launch; without a plan none can be done again."""
        if self._is_paused or threading.get_ident() != self._thread:
            return
        if plan is None:
            self._refuse("a launch that has no plan")
        elif not any(plan.hook is one for one in _block_setters):
            self._refuse("a launch whose config has a hook")
        elif launcher.rules:
            self._refuse("a launch whose arguments @triton.heuristics compute")
        elif 0 not in grid:  # one of no programs does nothing
            kinds = descriptor_types()
            noted = tuple(_Described.of(v) if type(v) in kinds else v for v in values)
            self._launches.append(_Launch(launcher, plan, grid, noted))

    def call(
        self,
        result: Any,
        alternatives: Mapping[str, Callable[..., Any]],
        attached: bool,
    ) -> Any:
        """Make the prepared call of a result; a text says why that is impossible.

        Args:
            result: what the function returned.
            alternatives: functions that may be called in the function's place.
            attached: the result is made part of autograd's graph.
        """
        if self.reason is not None:
            return self.reason
        try:
            winner = self._winner(alternatives)
            return self._call(result, winner, attached)
        except _Refusal as refusal:
            return str(refusal)

    def _winner(self, alternatives: Mapping[str, Callable[..., Any]]) -> Any:
        """Return the function of the name that won a launch; None where configs won all.

        The other launches are those of kernels without alternatives, such as copies.
        """
        names = [launch.plan.config.alternative for launch in self._launches]
        names = [name for name in names if name is not None]
        if not names:
            return None
        if len(names) == 1 and names[0] in alternatives:
            return alternatives[names[0]]
        raise _Refusal(f"a launch that alternative {names[0]!r} has won")

    def _call(self, result: Any, winner: Any, attached: bool) -> Any:
        outputs: dict[int, tuple[Any, ...]] = {}
        tree = None if winner is not None else self._tree(result, outputs)
        places = {allocation: place for place, allocation in enumerate(outputs)}
        scratch = _Scratch()
        looked_at = self._launches
        if winner is not None:  # of others nothing is done again
            looked_at = [one for one in looked_at if one.plan.config.alternative is not None]
        steps = [self._step(launch, places, scratch, winner) for launch in looked_at]
        if winner is None:
            self._check_outputs(places)
        shared = any(id(v) in _persistent for launch in self._launches for v in launch.values)
        if winner is not None:
            outputs, scratch = {}, _Scratch()
        room = ((scratch.bytes,), (1,), torch.uint8) if scratch.bytes else None
        given = (tuple(steps), tuple(outputs.values()), room, _renumbered(tree, places))
        return self._part.Call(*given, winner, attached, shared)

    def _step(
        self, launch: _Launch, places: Mapping[int, int], scratch: _Scratch, winner: Any
    ) -> tuple[Any, ...]:
        """Return a launch as the C part takes it: tensors by where their addresses come from."""
        head = (launch.launcher, launch.plan, launch.grid)
        if winner is not None:  # only looked at, to see that it still wins
            return (*head, (None,) * len(launch.values), (), -1)
        values, sources = list(launch.values), []
        for index, value in enumerate(values):
            if isinstance(value, torch.Tensor) and id(value) not in self._origins:
                values[index] = _persistent_address(value)
            elif isinstance(value, torch.Tensor):
                values[index] = None
                sources.append((index, *self._address(value, places, scratch)))
            elif isinstance(value, _Described):
                if id(value.base) not in self._origins:
                    raise _Refusal("a tensor descriptor that is not of an argument or an output")
                values[index] = value[1:]
                sources.append((index, *self._address(value.base, places, scratch)))
            elif isinstance(value, int) and self._is_address(value):
                raise _Refusal("an address that is given as a number")
        own = -1
        if launch.plan.scratch and launch.plan.function:
            if has_allocator():
                raise _Refusal("a kernel that takes memory of the program's own allocator")
            own = scratch.add(math.prod(launch.grid) * launch.plan.scratch)
        return (*head, tuple(values), tuple(sources), own)

    def _check_outputs(self, places: Mapping[int, int]) -> None:
        """Refuse results that nothing heard of writes: another library's launch may have."""
        if len(places) > _MOST_OUTPUTS:
            raise _Refusal(f"{len(places)} new tensors in a result; at most {_MOST_OUTPUTS}")
        values = (value for launch in self._launches for value in launch.values)
        given = {id(v.base if isinstance(v, _Described) else v) for v in values}
        written = {
            o.number for key, o in self._origins.items() if key in given and o.kind == _OUTPUT
        }
        if any(self._allocated[n].numel() for n in places.keys() - written):
            raise _Refusal("a result that no launch is given")

    def _is_address(self, number: int) -> bool:
        """Return whether a number is an address in a tensor that the call has seen."""
        memories = [tensor.untyped_storage() for tensor in self._alive]
        return any(0 <= number - memory.data_ptr() < memory.nbytes() for memory in memories)

    def _address(
        self, tensor: torch.Tensor, places: Mapping[int, int], scratch: _Scratch
    ) -> tuple[int, int, int]:
        origin = self._origins[id(tensor)]
        offset = tensor.data_ptr() - origin.base.data_ptr()
        if origin.kind == _ARGUMENT:
            return (_ARGUMENT, origin.number, offset)
        if origin.number in places:
            return (_OUTPUT, places[origin.number], offset)
        return (_SCRATCH, 0, offset + scratch.place(origin))

    def _tree(self, result: Any, outputs: dict[int, tuple[Any, ...]]) -> Any:
        """Return a result with its tensors by number: an allocation, or ~ an argument.

        Plain values are lists of one.
        """
        if isinstance(result, tuple):
            return tuple(self._tree(item, outputs) for item in result)
        if not isinstance(result, torch.Tensor):
            if type(result) not in _PLAIN:
                raise _Refusal(f"a result of type {type(result).__name__}")
            return [result]
        origin = self._origins.get(id(result))
        if origin is None:
            raise _Refusal("a result that is neither an argument nor allocated in the call")
        if origin.kind == _ARGUMENT:
            if result is not origin.base:
                raise _Refusal("a result that is a view of an argument")
            return ~origin.number
        if result.requires_grad or result.is_conj() or result.is_neg():
            raise _Refusal("a result that is part of a graph, a conjugate or a negative")
        made = (tuple(result.shape), result.stride(), result.dtype)
        if not _fills(result) or outputs.setdefault(origin.number, made) != made:
            raise _Refusal("a result that is a part of an allocation")
        return origin.number


class _Scratch:
    """Memory for what a call allocates and does not return: one allocation for all."""

    def __init__(self) -> None:
        self.bytes = 0
        self._places: dict[int, int] = {}

    def add(self, size: int) -> int:
        """Reserve `size` bytes more and return their offset."""
        offset, self.bytes = self.bytes, -(-(self.bytes + size) // _ALIGNMENT) * _ALIGNMENT
        return offset

    def place(self, origin: _Origin) -> int:
        """Return the offset of an allocation."""
        if origin.number not in self._places:
            self._places[origin.number] = self.add(origin.base.untyped_storage().nbytes())
        return self._places[origin.number]


def _persistent_address(tensor: torch.Tensor) -> int:
    if id(tensor) not in _persistent:
        raise _Refusal("a tensor that is neither an argument nor allocated in the call")
    return tensor.data_ptr()


def _is_absolute(func: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any] | None) -> bool:
    """Return whether an operation views a tensor's storage from its beginning, not the tensor's."""
    offset = (kwargs or {}).get("storage_offset", args[3] if len(args) > 3 else None)
    return func is _aten.as_strided.default and offset is not None


def _fills(tensor: torch.Tensor) -> bool:
    """Return whether a tensor needs all of its storage."""
    steps = zip(tensor.shape, tensor.stride(), strict=True)
    span = 1 + sum((size - 1) * stride for size, stride in steps) if tensor.numel() else 0
    needed = span * tensor.element_size()
    return tensor.storage_offset() == 0 and needed == tensor.untyped_storage().nbytes()


def _renumbered(tree: Any, places: Mapping[int, int]) -> Any:
    if isinstance(tree, tuple):
        return tuple(_renumbered(item, places) for item in tree)
    return places[tree] if isinstance(tree, int) and tree >= 0 else tree
