"""Tensors without memory: those on a GPU that is assumed, and what index tensors would hold.

A module makes its lengths, offsets and ids as on a GPU, and meta tensors forget them. While
`MetaValues` is active, what a small meta tensor would hold is computed beside it on the CPU.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

import torch
from torch.overrides import TorchFunctionMode

from asmtune.triton_api.tensors import own_gpu_kernel

if TYPE_CHECKING:
    from asmtune.triton_api.assumed_gpu import AssumedGpu


MOST: Final = 1 << 20
"""Most elements of a tensor that is computed beside a meta tensor."""

_UNSET: Final = frozenset({"empty", "empty_like", "empty_strided", "new_empty", "empty_permuted"})
_FILLS: Final = frozenset({"fill_", "zero_", "random_", "copy_"})


class MetaValues(TorchFunctionMode):
    """Calls PyTorch's functions on the CPU as well, from a fixed seed.

    A tensor is not known if it is large, if it was never filled, or if it depends on one that is
    not known. A mode of functions: one of dispatches imports 340 modules more, which takes 2 s.
    """

    def __init__(self) -> None:
        super().__init__()
        # By id, with the meta tensors, so that no id is used again.
        self._known: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}

    def __enter__(self) -> MetaValues:
        self._state = torch.random.get_rng_state()
        torch.default_generator.manual_seed(0)
        super().__enter__()  # type: ignore[no-untyped-call]
        return self

    def __exit__(self, *error: Any) -> None:
        super().__exit__(*error)  # type: ignore[no-untyped-call]
        torch.random.set_rng_state(self._state)

    def values(self, tensor: Any) -> torch.Tensor | None:
        """Return what a meta tensor would hold; None if that is not known."""
        known = self._known.get(id(tensor))
        return None if known is None else known[1]

    def __torch_function__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Run a function, and once more on the CPU if it makes or changes meta tensors."""
        del types
        kwargs = kwargs or {}
        result = func(*args, **kwargs)
        outputs = [one for one in tensors_in(result) if one.is_meta]
        if func is torch.Tensor.__setitem__:  # changes a tensor and returns nothing
            outputs = [one for one in args[:1] if one.is_meta]
        if outputs:
            self._note(outputs, self._computed(func, args, kwargs, outputs))
        return result

    def _note(self, outputs: list[torch.Tensor], values: list[torch.Tensor]) -> None:
        if len(values) != len(outputs):
            for output in outputs:
                if id(output) in self._known:  # written with what is not known, as are its views
                    self._forget(self._known[id(output)][1])
            return
        for output, value in zip(outputs, values, strict=True):
            self._known[id(output)] = (output, value)

    def _forget(self, value: torch.Tensor) -> None:
        memory = value.untyped_storage().data_ptr()
        self._known = {
            key: entry
            for key, entry in self._known.items()
            if entry[1].untyped_storage().data_ptr() != memory
        }

    def _computed(
        self, func: Any, args: Any, kwargs: dict[str, Any], outputs: list[torch.Tensor]
    ) -> list[torch.Tensor]:
        """Return what a function gives on the CPU; nothing if that is not known."""
        inputs = tensors_in((args, kwargs))
        name = getattr(func, "__name__", "")
        if any(one.numel() > MOST for one in (*inputs, *outputs)):
            return []
        if name in _UNSET:
            return []
        if name in _FILLS and self.values(args[0]) is None:
            empty = torch.empty(args[0].shape, dtype=args[0].dtype, device="cpu")
            self._known[id(args[0])] = (args[0], empty)
        if any(one.is_meta and self.values(one) is None for one in inputs):
            return []
        own_args, own_kwargs = self._on_cpu(args), self._on_cpu(kwargs)
        try:
            with torch.no_grad():
                result = func(*own_args, **own_kwargs)
        except (RuntimeError, TypeError, ValueError, LookupError):
            return []  # the module's own call has succeeded, and its launch is what matters
        if func is torch.Tensor.__setitem__:
            return [own_args[0]]
        # `.to("meta")` of a tensor on the CPU is a copy, and `.to("cpu")` is not.
        own = [one for one in inputs if not one.is_meta]
        return [v.clone() if any(v is one for one in own) else v for v in tensors_in(result)]

    def _on_cpu(self, value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            return self.values(value) if value.is_meta else value
        if isinstance(value, dict):
            return {key: self._on_cpu(item) for key, item in value.items()}
        if type(value) in (tuple, list):
            return type(value)(map(self._on_cpu, value))
        is_device = isinstance(value, torch.device | str) and str(value) == "meta"
        return torch.device("cpu") if is_device else value


def tensors_in(value: Any) -> list[torch.Tensor]:
    """List the tensors in nested tuples, lists and mappings."""
    if isinstance(value, torch.Tensor):
        return [value]
    items = value.values() if isinstance(value, dict) else value
    if not isinstance(value, tuple | list | dict):
        return []
    return [one for item in items for one in tensors_in(item)]


_NAMED: Final = re.compile(r"cuda(:\d+)?")
_READS: Final = frozenset(
    {"item", "tolist", "numpy", "cpu", "equal", "allclose", "nonzero", "__bool__", "__int__"}
    | {"__float__", "__index__", "is_nonzero", "unique"}
)
_ANSWERS: Final = {"is_cuda": True, "is_meta": False, "is_cpu": False}


class UnknownValueError(RuntimeError):
    """A program reads the value of a tensor that has none."""


class AssumedTensors(MetaValues):
    """Makes tensors for "cuda" on another device, and has them say that they are on "cuda:0".

    Args:
        place: "meta", or "cpu" or "cuda" where values are read, or launches shall run.
        asked: is called where a tensor is made for the GPU.
    """

    def __init__(self, place: str, asked: Callable[[], None]) -> None:
        super().__init__()
        self._place, self._asked = place, asked

    def __torch_function__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Run a function on the tensors' own device.

        Raises:
            UnknownValueError: it reads values that are not known.
        """
        if func is torch.device:  # a device is a name, and stays what the program calls it
            made = func(*args, **(kwargs or {}))
            if made.type == "cuda":
                self._asked()
            return made
        kernel = own_gpu_kernel(func)
        if kernel is not None:
            with self:  # it asks for its tensors' device, and makes others
                return kernel(*args, **(kwargs or {}))
        name = getattr(func, "__name__", "")
        own = isinstance(args[0], torch.Tensor) if args else False
        if name == "__get__" and own and args[0].device.type == self._place:
            return self._property(func, types, args)
        if name == "get_device" and own:
            return 0
        if name == "cuda":
            func, args, kwargs = torch.Tensor.to, (args[0], self._place), {}
        args = self.placed(args, "")
        kwargs = {key: self.placed(value, key) for key, value in (kwargs or {}).items()}
        if self._place != "meta":
            return func(*args, **kwargs)
        inputs = tensors_in((args, kwargs))
        if name in _READS and any(one.is_meta for one in inputs):
            known = [self.values(one) if one.is_meta else one for one in inputs]
            if any(value is None for value in known):
                raise UnknownValueError(f"{name}() reads values of a tensor that has none")
            return func(*self._on_cpu(args), **self._on_cpu(kwargs))
        return super().__torch_function__(func, types, args, kwargs)

    def know(self, tensor: torch.Tensor, value: torch.Tensor) -> None:
        """Let a meta tensor hold what a tensor of the CPU holds."""
        self._known[id(tensor)] = (tensor, value)

    def _property(self, func: Any, types: Any, args: Any) -> Any:
        name = getattr(getattr(func, "__self__", None), "__name__", "")
        if name == "device":
            return torch.device("cuda", 0)
        return _ANSWERS[name] if name in _ANSWERS else super().__torch_function__(func, types, args)

    def placed(self, value: Any, keyword: str = "device") -> Any:
        """Return an argument with the assumed GPU's place for each "cuda" in it."""
        if type(value) in (tuple, list):
            return type(value)(self.placed(one, keyword) for one in value)
        if isinstance(value, torch.device):
            is_gpu = value.type == "cuda"
        elif isinstance(value, str):
            is_gpu = _NAMED.fullmatch(value) is not None
        else:
            is_gpu = keyword == "device" and type(value) is int
        if not is_gpu:
            return value
        self._asked()
        return torch.device(self._place)


@contextmanager
def on_assumed_gpu(gpu: AssumedGpu, place: str = "meta") -> Iterator[AssumedTensors]:
    """Run the user's code as on an assumed GPU, whose tensors lie at a place; yield their mode."""
    tensors = AssumedTensors(place, gpu.answered(None))
    set_default = torch.set_default_device
    default = torch.get_default_device()
    before = None if default.type == "cpu" else default  # None removes PyTorch's own mode
    with gpu.active(), tensors:
        torch.set_default_device = lambda device: set_default(tensors.placed(device))
        try:
            yield tensors
        finally:
            torch.set_default_device = set_default
            set_default(before)
