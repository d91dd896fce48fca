"""Keys that a program has met: a file of JSON lines, whose launches are made again and tuned.

Floating-point tensors hold random numbers, integer tensors what was recorded of them, repeated
where the tensor is larger, and zeros where nothing was.
"""

from __future__ import annotations

import base64
import errno
import importlib.util
import json
import math
import os
import sys
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any, Final

import numpy as np
import torch
from numpy.typing import NDArray

from asmtune.base.atomic_write import folder_lock
from asmtune.base.errors import USER_CODE_ERRORS, InputError, ProblemError
from asmtune.base.json_codec import JsonCodec, parse_json, printable, text_of, to_json
from asmtune.base.limited_read import inflated, read_limited
from asmtune.core.failures import of_one_config
from asmtune.core.kernel_module import kernels_in
from asmtune.core.keys.buckets import BucketRules
from asmtune.core.problem import Problem
from asmtune.core.records.artifacts import Failure
from asmtune.core.records.tuned import TuneKey
from asmtune.core.space.space import Space
from asmtune.core.user_modules import import_dotted, import_file
from asmtune.measure.bench.argument_codec import SharedRegion, restore
from asmtune.measure.checks.effects import tensor_parts
from asmtune.runtime.autotuner import AsmAutotuner
from asmtune.runtime.decorator import triton_autotuners
from asmtune.runtime.offline.tuning_queue import TuningGpu, fill
from asmtune.runtime.patching.patched_autotuner import convert
from asmtune.store.codec import key_digest
from asmtune.triton_api.jit_functions import jit_function, python_function
from asmtune.tuning.request import TuningRequest, TuningResult

FORMAT: Final = "asmtune-key 3"
MOST_ELEMENTS: Final = 1 << 16
"""Elements that are kept of an integer tensor; a larger one is filled with repeats of these."""
_AGAIN: Final = "record it again with `asmtune run --record FILE PROGRAM`"
_ALIGNMENT: Final = 512


@dataclass(frozen=True, kw_only=True)
class RecordedKey:
    """The first launch of a key.

    Attributes:
        kernel: its name in the store.
        module, file: the module whose names hold the autotuner, and its file, if it has one.
        source: a digest of the kernel's source.
        buckets: the program's rules for keys.
        shape, dtypes, device: the rest of its `TuneKey`.
        positional: names of the arguments that were given by position.
        arguments: by name, as `Packing` describes them.
        memory: the ranges of bytes under the tensors: device, first address, size.
        contents: elements of integer tensors, which steer a kernel, by the argument's name.
        grid: names of a config's values that its function reads, and sizes by these values.
    """

    kernel: str
    module: str
    file: str | None
    shape: Mapping[str, Any]
    dtypes: Mapping[str, str]
    device: str
    source: str
    buckets: tuple[str, ...]
    positional: tuple[str, ...]
    arguments: Mapping[str, Any]
    memory: tuple[Any, ...]
    contents: Mapping[str, Any]
    grid: Any
    format: str = FORMAT

    def key(self, device: str = "") -> TuneKey:
        """Return the key as the store knows it for a device; without one it is for any."""
        return TuneKey(self.kernel, self.shape, self.dtypes, device)


def _line_of(value: Any, where: str) -> str:
    """Check for text, and escape what would break a message into lines."""
    return printable(text_of(value, where))


_CODEC: Final = JsonCodec(decoders={str: _line_of})


def read_keys(path: Path) -> tuple[RecordedKey, ...]:
    """Read a file of keys, each once.

    Raises:
        InputError: it is missing, cut off, another kind of file or of another version, or a
            field is wrong; says what to do.
    """
    try:
        rows = [parse_json(line) for line in read_limited(path).splitlines()]
    except OSError as error:
        raise InputError(f"keys {path}: {error.strerror}; {_AGAIN}") from error
    except ValueError as error:
        cause = " ".join(str(error).split())
        raise InputError(f"keys {path}: cut off or damaged ({cause}); {_AGAIN}") from error
    keys: dict[str, RecordedKey] = {}
    for number, row in enumerate(rows, 1):
        where = f"keys {path}, line {number}"
        if not isinstance(row, dict) or row.get("format") != FORMAT:
            raise InputError(f"{where}: no {FORMAT}, which this asmtune reads; {_AGAIN}")
        key = _CODEC.read(RecordedKey, row, where)
        BucketRules.of(key.buckets)
        keys.setdefault(key_digest(key.key()), key)
    return tuple(keys.values())


def add_keys(path: Path, keys: Sequence[RecordedKey]) -> None:
    """Add keys to a file that other processes add to at the same time; make it if need be.

    Raises:
        OSError: it cannot be written.
    """
    lines = "".join(f"{json.dumps(to_json(key))}\n" for key in keys).encode()
    with folder_lock(path.absolute().parent), path.open("ab", buffering=0) as file:
        end = file.tell()
        if file.write(lines) != len(lines):  # the disk is full
            file.truncate(end)
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


@dataclass(frozen=True)
class RecordedKeys:
    """Recorded keys of a program, to be tuned one after another without it.

    Attributes:
        keys: the keys.
        changed: names of kernels whose source is not the recorded one any more, as `results`
            meets them.
    """

    keys: tuple[RecordedKey, ...]
    changed: dict[str, None] = field(default_factory=dict)

    @classmethod
    def of(cls, path: Path, kernel: str | None = None) -> RecordedKeys:
        """Read a file of keys; with `kernel`, those of a kernel of that name alone.

        Raises:
            InputError: the file cannot be read, or has no key of the kernel.
        """
        keys = read_keys(path)
        own = [key for key in keys if f".{key.kernel}".endswith(f".{kernel or key.kernel}")]
        if not own:
            has = ", ".join(sorted({key.kernel for key in keys})) or "no key at all"
            wanted = "" if kernel is None else f"no key of kernel {kernel}: "
            again = "name one of these, or record more with `asmtune run --record`"
            raise InputError(f"keys {path}: {wanted}the file has {has}; {again}")
        return cls(tuple(own))

    def results(self, machine: TuningGpu) -> Iterator[TuningResult]:
        """Tune each key and yield its result; one that fails stops no other.

        Only one key's arguments are in memory at a time; its result has none.
        """
        kernels: dict[tuple[Any, ...], AsmAutotuner | Failure] = {}
        for key in self.keys:
            place = key.kernel, key.module, key.buckets
            if place not in kernels:
                kernels[place] = of_one_config("input", "kernel", partial(load_kernel, key))
            work = partial(recorded_request, key, kernels[place], machine.device)
            request = of_one_config("input", "launch", work)
            if isinstance(request, Failure):
                yield _failed(key, machine.device, request)
            else:
                yield self._tuned(key, request, machine)

    def _tuned(self, key: RecordedKey, request: TuningRequest, machine: TuningGpu) -> TuningResult:
        if request.expected.source != key.source:
            self.changed[key.kernel] = None
        return machine.tuned(request)


def _failed(key: RecordedKey, device: str, failure: Failure) -> TuningResult:
    problem = Problem(None, {}, (1,), dict(key.shape), key.kernel)
    request = TuningRequest(problem, key.key(device), Space({}))
    return TuningResult(request, "failed", error=printable(failure.detail.splitlines()[0]))


def tuner_name(tuner: Any) -> str:
    """Return the name by which the store knows the kernel of an autotuner."""
    function = jit_function(tuner.fn)
    return f"{function.__module__}.{function.__qualname__}"


def load_kernel(recorded: RecordedKey) -> AsmAutotuner:
    """Import the kernel of a recorded key as `asmtune run` would launch it.

    Raises:
        ProblemError: its module cannot be imported, or has no such kernel; says what to do.
    """
    is_script = recorded.module == "__main__" and recorded.file is not None
    where = f"kernel {recorded.kernel}: {recorded.file if is_script else recorded.module}"
    try:
        module = _imported(recorded)
    except ProblemError as error:
        raise ProblemError(
            f"{where} cannot be imported here ({error}): install its package or put its folder "
            f"on PYTHONPATH, or {_AGAIN}"
        ) from error
    tuners = triton_autotuners(module)
    tuner = next((one for one in tuners if tuner_name(one) == recorded.kernel), None)
    if tuner is None:
        names = ", ".join(sorted({tuner_name(one) for one in tuners})[:4])
        raise ProblemError(
            f"{where} holds no autotuned kernel of this name ({names or 'it has none'}): this is "
            f"another version of the program; {_AGAIN}"
        )
    if isinstance(tuner, AsmAutotuner):
        tuner.reconfigure(tuner.options)  # its function may have got its recorded name just now
        return tuner
    return convert(tuner, {"buckets": BucketRules.of(recorded.buckets)})


def _imported(recorded: RecordedKey) -> ModuleType:
    if recorded.module != "__main__":
        if recorded.file is not None:
            _make_findable(recorded.module, Path(recorded.file))
        return import_dotted(recorded.module)
    module = import_file(Path(recorded.file or "__main__"))
    for name in kernels_in(module):  # the store knows a script's functions by these names
        kernel = getattr(module, name)
        jit_function(kernel).__module__ = python_function(kernel).__module__ = "__main__"
    return module


def _make_findable(module: str, file: Path) -> None:
    """Put the folder of a module's package last on `sys.path` if it is not found without."""
    top = module.partition(".")[0]
    if top in sys.modules or importlib.util.find_spec(top) is not None:
        return
    above = module.count(".") + (file.stem == "__init__")
    if above < len(file.parents):
        sys.path.append(str(file.parents[above]))


def recorded_request(
    recorded: RecordedKey, tuner: AsmAutotuner | Failure, device: str
) -> TuningRequest:
    """Make a recorded launch's arguments and its request on a device.

    Raises:
        InputError: there is no kernel, or the file's description is damaged or does not fit it.
        torch.OutOfMemoryError: there is no room for the arguments.
    """
    if isinstance(tuner, Failure):
        raise InputError(tuner.detail)
    positional = set(recorded.positional)
    if not positional <= set(tuner.arg_names) & recorded.arguments.keys():
        raise InputError(f"kernel {recorded.kernel} has other parameters now; {_AGAIN}")
    try:
        values, grid = make_arguments(recorded), _grid(recorded)
    except torch.OutOfMemoryError:
        raise
    except (*USER_CODE_ERRORS, RuntimeError, zlib.error) as error:
        cause = " ".join(f"{type(error).__name__}: {error}".split())
        raise InputError(
            f"kernel {recorded.kernel}: the recorded launch is damaged ({cause}); {_AGAIN}"
        ) from error
    placed = {name: values.pop(name) for name in recorded.positional}
    return tuner.request(placed, values, grid, device)


def grid_value(value: Any) -> Any:
    """Return a value of a config as JSON has it."""
    is_json = isinstance(value, int | str | None)
    is_json = is_json or (isinstance(value, float) and math.isfinite(value))
    return value if is_json else str(value)


def _grid(recorded: RecordedKey) -> Callable[[Mapping[str, Any]], tuple[int, ...]]:
    """Make the function of a recorded grid: sizes by the values of a config that it read."""
    names = tuple(recorded.grid["reads"])
    recorded_sizes = {tuple(at): tuple(map(int, sizes)) for at, sizes in recorded.grid["sizes"]}

    def grid(values: Mapping[str, Any]) -> tuple[int, ...]:
        at = tuple(grid_value(values.get(name)) for name in names)
        if at not in recorded_sizes:
            shown = ", ".join(f"{name}={value}" for name, value in zip(names, at, strict=True))
            raise ProblemError(f"kernel {recorded.kernel}: no grid was recorded at {shown}")
        return recorded_sizes[at]

    return grid


def make_arguments(recorded: RecordedKey) -> dict[str, Any]:
    """Make the arguments by name."""
    memory = [_region(region) for region in recorded.memory]
    values = {name: restore(value, memory) for name, value in recorded.arguments.items()}
    for seed, (name, part) in enumerate(tensor_parts(values).items()):
        tensor = part if isinstance(part, torch.Tensor) else part.base
        content = recorded.contents.get(name) if tensor.numel() else None
        fill(tensor, seed, None if content is None else _unpacked(tensor, content))
    return values


def _region(region: Mapping[str, Any]) -> SharedRegion:
    """Allocate the bytes of a region, which begin at the recorded address's alignment."""
    pinned = bool(region["pinned"]) and torch.cuda.is_available()
    size, device = int(region["bytes"]) + _ALIGNMENT, region["device"]
    buffer = torch.empty(size, dtype=torch.uint8, device=device, pin_memory=pinned)
    lead = (region["first"] - buffer.data_ptr()) % _ALIGNMENT
    return SharedRegion(buffer, lead - region["first"])


def _unpacked(tensor: Any, content: Mapping[str, str]) -> NDArray[Any]:
    """Read the recorded elements of a tensor of integers."""
    kind = np.dtype(content["dtype"])
    if kind.kind not in "iu" or kind.itemsize != tensor.element_size():
        raise ValueError(f"contents of {content['dtype']} for a tensor of {tensor.dtype}")
    packed = base64.b64decode(content["zlib"], validate=True)
    return np.frombuffer(inflated(packed, MOST_ELEMENTS * kind.itemsize), kind)
