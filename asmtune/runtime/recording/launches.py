"""Recorded launches made again: the kernel is imported, its arguments are made anew.

Floating-point tensors hold random numbers, integer tensors what was recorded of them, repeated
where the tensor is larger, and zeros where nothing was.
"""

from __future__ import annotations

import base64
import binascii
import math
import sys
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any, Final

import numpy as np
import torch

from asmtune.base.errors import USER_CODE_ERRORS, InputError, ProblemError
from asmtune.base.limited_read import inflated
from asmtune.core.index_values import is_index
from asmtune.core.kernel_module import kernels_in
from asmtune.core.keys.rules import BucketRules
from asmtune.core.user_modules import import_dotted, import_file
from asmtune.measure.bench.argument_codec import SharedRegion, restore
from asmtune.measure.checks.effects import tensor_parts
from asmtune.runtime.autotuner import AsmAutotuner
from asmtune.runtime.patching.patched_autotuner import convert
from asmtune.runtime.recording.key_file import MOST_ELEMENTS, RecordedKey
from asmtune.triton_api.autotuners import autotuner_in
from asmtune.triton_api.jit_functions import jit_function, python_function
from asmtune.tuning.request import TuningRequest

_AGAIN: Final = "record its keys again with `asmtune run --record`"
_ALIGNMENT: Final = 512
_PIECE: Final = 1 << 22  # elements of a dtype without random numbers that are made at once


def grid_value(value: Any) -> Any:
    """Return a value of a config as JSON has it."""
    is_json = isinstance(value, int | str | None)
    is_json = is_json or (isinstance(value, float) and math.isfinite(value))
    return value if is_json else str(value)


@dataclass(frozen=True)
class RecordedGrid:
    """The grid's sizes by the values of a config that its function read.

    Attributes:
        kernel: for messages.
        reads: names of the values.
        sizes: programs along three axes by these values.
    """

    kernel: str
    reads: tuple[str, ...]
    sizes: Mapping[tuple[Any, ...], tuple[int, ...]]

    def __call__(self, values: Mapping[str, Any]) -> tuple[int, ...]:
        """Return the sizes for a config.

        Raises:
            ProblemError: none were recorded.
        """
        at = tuple(grid_value(values.get(name)) for name in self.reads)
        if at not in self.sizes:
            shown = ", ".join(f"{name}={value}" for name, value in zip(self.reads, at, strict=True))
            raise ProblemError(f"kernel {self.kernel}: no grid was recorded at {shown}; {_AGAIN}")
        return self.sizes[at]


def autotuners_in(module: Any) -> Iterator[Any]:
    """Yield the autotuners among a module's names, under other decorators and in containers."""
    if not issubclass(type(module), ModuleType):
        return
    names = object.__getattribute__(module, "__dict__")  # wakes no module that loads itself
    for value in list(names.values()):
        for item in _items(value):
            if (tuner := autotuner_in(item)) is not None:
                yield tuner


def _items(value: Any) -> Iterable[Any]:
    kind = type(value)
    if kind is dict:
        return list(value.values())
    if kind in (list, tuple):
        return list(value)
    if kind is type and value.__module__ != "builtins":  # a class with kernels
        return [getattr(item, "__func__", item) for item in vars(value).values()]
    return (value,)


def load_kernel(recorded: RecordedKey, rules: BucketRules) -> AsmAutotuner:
    """Import the kernel of a recorded key as `asmtune run` would launch it.

    Raises:
        ProblemError: its module cannot be imported, or has no such kernel; says what to do.
    """
    module = _imported(recorded)
    tuners = [t for t in autotuners_in(module) if tuner_name(t) == recorded.kernel]
    if not tuners:
        names = sorted({tuner_name(tuner) for tuner in autotuners_in(module)})
        listed = f"those there are {', '.join(names[:4])}" if names else "it has none"
        raise ProblemError(
            f"kernel {recorded.kernel}: {_where(recorded)} holds no autotuned kernel of this name "
            f"({listed}): this is another version of the program; {_AGAIN}"
        )
    converted = [_converted(tuner, rules) for tuner in tuners]
    if len(converted) == 1 or recorded.arguments is None:
        return converted[0]
    given = recorded.arguments.keys()
    fitting = [one for one in converted if given <= set(one.arg_names)]
    return (fitting or converted)[0]


def _converted(tuner: Any, rules: BucketRules) -> AsmAutotuner:
    if isinstance(tuner, AsmAutotuner):
        tuner.reconfigure(tuner.options)  # its function may have got its recorded name just now
        return tuner
    return convert(tuner, {"buckets": rules})


def tuner_name(tuner: Any) -> str:
    """Return the name by which the store knows the kernel of an autotuner."""
    function = jit_function(tuner.fn)
    return f"{function.__module__}.{function.__qualname__}"


def _where(recorded: RecordedKey) -> str:
    return recorded.file if recorded.module == "__main__" and recorded.file else recorded.module


def _imported(recorded: RecordedKey) -> ModuleType:
    try:
        if recorded.module == "__main__":
            return _as_main(import_file(Path(recorded.file or "__main__")))
        if recorded.file is not None:
            _make_findable(recorded.module, Path(recorded.file))
        return import_dotted(recorded.module)
    except ProblemError as error:
        raise ProblemError(
            f"kernel {recorded.kernel}: {_where(recorded)} cannot be imported here ({error}): "
            f"install its package or put its folder on PYTHONPATH, or {_AGAIN}"
        ) from error


def _as_main(module: ModuleType) -> ModuleType:
    """Give a script's functions the names by which the store knows them."""
    for name in kernels_in(module):
        kernel = getattr(module, name)
        jit_function(kernel).__module__ = python_function(kernel).__module__ = "__main__"
    return module


def _make_findable(module: str, file: Path) -> None:
    """Put the folder of a module's package last on `sys.path` if it is not found without."""
    import importlib.util

    top = module.partition(".")[0]
    if top in sys.modules or importlib.util.find_spec(top) is not None:
        return
    above = module.count(".") + (file.stem == "__init__")
    if above < len(file.parents):
        sys.path.append(str(file.parents[above]))


def recorded_request(
    recorded: RecordedKey, tuner: AsmAutotuner, device: str, place: str
) -> TuningRequest:
    """Make the request of a recorded key on a device, with arguments in memory at a place.

    Args:
        recorded: the key.
        tuner: its kernel, as `load_kernel` returns it.
        device: the GPU's name, as its driver gives it.
        place: PyTorch's device for what was on a GPU.

    Raises:
        InputError: the file's description is damaged, or does not fit the kernel.
        torch.OutOfMemoryError: there is no room for the arguments.
    """
    if recorded.problem or recorded.arguments is None:
        raise InputError(recorded.problem or "its arguments were not recorded")
    unknown = [name for name in recorded.positional if name not in recorded.arguments]
    if unknown or not set(recorded.positional) <= set(tuner.arg_names):
        raise InputError(f"kernel {recorded.kernel} has other parameters now; {_AGAIN}")
    try:
        values = make_arguments(recorded, place)
        sizes = {
            tuple(at): tuple(int(size) for size in sizes) for at, sizes in recorded.grid["sizes"]
        }
        grid = RecordedGrid(recorded.kernel, tuple(recorded.grid["reads"]), sizes)
    except torch.OutOfMemoryError:
        raise
    except (*USER_CODE_ERRORS, RuntimeError, zlib.error) as error:
        cause = " ".join(f"{type(error).__name__}: {error}".split())
        raise InputError(
            f"kernel {recorded.kernel}: the recorded launch is damaged ({cause}); {_AGAIN}"
        ) from error
    positional = {name: values.pop(name) for name in recorded.positional}
    return tuner.request(positional, values, grid, device)


def make_arguments(recorded: RecordedKey, place: str) -> dict[str, Any]:
    """Make the arguments by name."""
    memory = [_region(region, place) for region in recorded.memory]
    described = _at_place(recorded.arguments, place)
    values = {name: restore(value, memory) for name, value in described.items()}
    contents = recorded.contents or {}
    for seed, (name, part) in enumerate(tensor_parts(values).items()):
        tensor = part if isinstance(part, torch.Tensor) else part.base
        if not tensor.numel():
            continue
        flat = _in_memory(tensor)
        if name in contents:
            _fill(flat, contents[name])
        elif is_index(tensor):
            flat.zero_()
        else:
            _randomize(flat, torch.Generator(flat.device).manual_seed(seed))
    return values


def _region(region: Mapping[str, Any], place: str) -> SharedRegion:
    device = place if region["device"] == "cuda" else region["device"]
    pinned = bool(region["pinned"]) and torch.cuda.is_available()
    size = int(region["bytes"]) + _ALIGNMENT
    buffer = torch.empty(size, dtype=torch.uint8, device=device, pin_memory=pinned)
    lead = (region["first"] - buffer.data_ptr()) % _ALIGNMENT
    return SharedRegion(buffer, lead - region["first"])


def _at_place(value: Any, place: str) -> Any:
    """Prepare a description for `restore`: devices of tensors, functions and numbers by name."""
    if isinstance(value, list):
        return [_at_place(item, place) for item in value]
    if not isinstance(value, Mapping):
        return value
    if "pointer" in value:
        return {**value, "device": place if value["device"] == "cuda" else value["device"]}
    if value.keys() == {"float"}:
        return {"scalar": float(value["float"])}
    if value.keys() == {"function"}:
        return {"scalar": _function(value["function"])}
    return {name: _at_place(item, place) for name, item in value.items()}


def _function(name: str) -> Any:
    module, _, path = name.partition(":")
    value: Any = import_dotted(module)
    for part in path.split("."):
        value = getattr(value, part)
    return value


def _in_memory(tensor: Any) -> Any:
    """Return the elements from a tensor's first to its last as they lie in memory."""
    reach = sum((n - 1) * step for n, step in zip(tensor.shape, tensor.stride(), strict=True))
    return tensor.as_strided((reach + 1,), (1,), tensor.storage_offset())


def _fill(flat: Any, content: Mapping[str, str]) -> None:
    """Fill integers with recorded ones, repeated."""
    kind = np.dtype(content["dtype"])
    if kind.kind not in "iu" or kind.itemsize != flat.element_size():
        raise ValueError(f"contents of {content['dtype']} for a tensor of {flat.dtype}")
    try:
        packed = base64.b64decode(content["zlib"], validate=True)
    except binascii.Error as error:
        raise ValueError(f"contents: {error}") from error
    values = np.frombuffer(inflated(packed, MOST_ELEMENTS * kind.itemsize), kind)
    known = torch.from_numpy(values.copy()).to(flat.device)
    as_integers = flat.view(known.dtype) if flat.dtype != known.dtype else flat
    for start in range(0, len(flat), len(known)):
        piece = as_integers[start : start + len(known)]
        piece.copy_(known[: len(piece)])


def _randomize(flat: Any, draw: torch.Generator) -> None:
    """Fill floating-point elements with normally distributed numbers."""
    if flat.dtype in (torch.float16, torch.bfloat16, torch.float32, torch.float64):
        flat.normal_(generator=draw)
        return
    if flat.is_complex():
        _randomize(torch.view_as_real(flat).view(-1), draw)
        return
    make: Callable[[int], Any]
    if flat.dtype.is_floating_point and "float4" not in str(flat.dtype):

        def make(count: int) -> Any:
            return torch.randn(count, generator=draw, device=flat.device).to(flat.dtype)
    else:
        flat = flat.view(torch.uint8)

        def make(count: int) -> Any:
            whole = torch.randint(0, 256, (count,), generator=draw, device=flat.device)
            return whole.to(torch.uint8)

    for start in range(0, len(flat), _PIECE):
        piece = flat[start : start + _PIECE]
        piece.copy_(make(len(piece)))
