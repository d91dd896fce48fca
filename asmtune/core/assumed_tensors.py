"""Tensors on a GPU that is assumed: they have no memory, and say that they are on it."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

import torch

from asmtune.core.meta_values import MetaValues, tensors_in
from asmtune.triton_api.tensors import own_gpu_kernel

if TYPE_CHECKING:
    from asmtune.triton_api.assumed_gpu import AssumedGpu

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
