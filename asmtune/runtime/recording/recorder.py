"""`KeyRecorder` writes each key that a program meets to a file."""

from __future__ import annotations

import base64
import inspect
import os
import sys
import warnings
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import lru_cache, partial
from pathlib import Path
from typing import Any, Final

import torch

from asmtune.base.errors import AsmtuneError, InputError
from asmtune.base.text import user_stacklevel
from asmtune.core.config import Config
from asmtune.core.failures import guarded
from asmtune.core.index_values import is_index, values_of
from asmtune.core.problem import Problem
from asmtune.core.records.artifacts import Failure
from asmtune.core.records.tuned import TuneKey
from asmtune.measure.bench.argument_codec import Packing
from asmtune.measure.checks.effects import tensor_parts
from asmtune.runtime.calls import KernelCall, is_capturing
from asmtune.runtime.events import LAUNCHING_MODULES, key_text
from asmtune.runtime.recording.key_file import (
    MOST_ELEMENTS,
    KeyFile,
    RecordedKey,
    add_keys,
    device_free,
    start_file,
)
from asmtune.runtime.recording.launches import autotuners_in, grid_value, tuner_name
from asmtune.triton_api.interpreter import INTERPRET, is_interpreting
from asmtune.triton_api.jit_functions import jit_function, python_function
from asmtune.tuning.request import TuningRequest

_ALIGNMENT: Final = 512
_ADDRESSES: Final = (1 << 40, 1 << 48)
"""Where a GPU's memory lies for a process; sizes and offsets are smaller, hashes larger."""

_TRACED: Final = (
    "torch.compile traced it, which tells no grid: record a step that runs under "
    "torch.compiler.set_stance('force_eager')"
)
_CAPTURED: Final = (
    "it was met while a CUDA graph was captured, when index tensors cannot be read: record a "
    "launch before the capture"
)
_UNHELD: Final = (
    "a function made the kernel and no module holds it, so that no other process finds it: tune it "
    "in the program, or keep it in a variable of a module"
)
_MOST_CONFIGS: Final = 20_000  # whose grids are evaluated: at most a second


class RecordWarning(UserWarning):
    """A key could not be written to the file of `asmtune run --record`."""


class KeyRecorder:
    """Writes each key to a file as soon as it is met, so that no end of the program loses it."""

    def __init__(self, path: Path, program: str, buckets: tuple[str, ...] = ()) -> None:
        """Read the file if there is one; else write one without keys.

        Raises:
            InputError: it cannot be read or written, or holds keys of another program.
        """
        self._path = path.absolute()
        self._own = KeyFile(program, buckets)
        try:
            known = start_file(self._path, self._own)
        except OSError as error:
            raise InputError(f"--record {path}: {error.strerror}; name another file") from error
        self._listed = frozenset(key.digest for key in known if not key.problem)
        self._whole: set[str] = set(self._listed)
        self._met: dict[str, TuneKey] = {}
        self._problems: dict[str, str] = {}

    def summary(self) -> list[str]:
        """Return lines on the keys that were added to the file, for the program's end."""
        new = len(self._met.keys() - self._listed)
        if not new and is_interpreting():
            told = (
                f"{INTERPRET} is set: kernels are interpreted, and an interpreted launch has no key"
            )
            return [f"nothing can be recorded in {self._path}, since {told}; run without it"]
        if not new:
            return [f"no new key was met; {self._path} has {_keys(len(self._listed))}"]
        added = f"{new} of {_keys(len(self._met))} met were new to {self._path}"
        lines = [f"{added}; `asmtune tune --from {self._path}` tunes them"]
        for digest, problem in list(self._problems.items()):
            lines.append(f"cannot be tuned from there: {key_text(self._met[digest])}: {problem}")
        return lines

    def launched(self, request: TuningRequest, call: KernelCall) -> None:
        """Write the key of a launch, before its kernel changes the arguments."""
        digest = device_free(request.key)
        # Not under a lock: a child that is forked meanwhile would wait for it for ever.
        is_first = self._met.setdefault(digest, request.key) is request.key
        if digest in self._whole:
            return
        recorded = recorded_key(request, call)
        if not recorded.problem:
            self._whole.add(digest)
            self._problems.pop(digest, None)
        else:
            self._problems[digest] = recorded.problem
            if not is_first:
                return
        try:
            add_keys(self._path, replace(self._own, keys=(recorded,)))
        except OSError as error:
            text = f"{key_text(request.key)}: not recorded in {self._path}: {error}"
            warnings.warn(
                f"{text}; the program goes on",
                RecordWarning,
                stacklevel=user_stacklevel(*LAUNCHING_MODULES),
            )


def _keys(count: int) -> str:
    return f"{count} key{'' if count == 1 else 's'}"


def recorded_key(request: TuningRequest, call: KernelCall) -> RecordedKey:
    """Describe a launch so that another process can make one of the same key, or say why not."""
    key = request.key
    module, file, is_held = _home(jit_function(request.problem.kernel), key.kernel)
    made = request.expected
    recorded = RecordedKey(
        key.kernel, module, file, key.shape, key.dtypes, key.device, made.source, made.space
    )
    if not is_held and "<locals>" in key.kernel:
        return replace(recorded, problem=_UNHELD)
    try:
        # Tensors of a subclass, and the user's grid, may raise anything: the launch goes on.
        whole = guarded("input", partial(_with_launch, recorded, request, call))
    except AsmtuneError as error:
        return replace(recorded, problem=" ".join(str(error).split()))
    if isinstance(whole, Failure):
        return replace(recorded, problem=" ".join(whole.detail.split()))
    return whole


def _with_launch(recorded: RecordedKey, request: TuningRequest, call: KernelCall) -> RecordedKey:
    packing = Packing(by_name=True)
    given = {**call.positional, **call.kwargs}
    if any(getattr(part, "is_meta", False) for part in tensor_parts(given).values()):
        return replace(recorded, problem=_TRACED)
    described = {name: packing.describe(v, f"argument {name}") for name, v in given.items()}
    regions = list(packing.regions.values())
    memory = tuple({**r.to_json(), "first": r.first % _ALIGNMENT, "at": 0} for r in regions)
    firsts = [region.first for region in regions]
    contents, addresses = contents_of(given)
    if addresses:
        text = "holds addresses, which mean nothing in another process: tune it in the program"
        return replace(recorded, problem=f"argument {addresses[0]} {text}")
    if is_capturing() and _indices(given).keys() - contents.keys():
        return replace(recorded, problem=_CAPTURED)
    return replace(
        recorded,
        positional=tuple(call.positional),
        arguments={name: _relative(one, firsts) for name, one in described.items()},
        memory=memory,
        contents=contents,
        grid=_grid(request),
    )


def _relative(value: Any, firsts: list[int]) -> Any:
    """Replace addresses by those in regions that begin below 512, with the same alignment."""
    if isinstance(value, list):
        return [_relative(item, firsts) for item in value]
    if not isinstance(value, dict):
        return value
    if "pointer" in value:
        first = 0 if value["region"] is None else firsts[value["region"]]
        return {**value, "pointer": value["pointer"] - first + first % _ALIGNMENT}
    return {name: _relative(item, firsts) for name, item in value.items()}


def _indices(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the integer tensors that have elements, by name."""
    parts = tensor_parts(given).items()
    return {name: part for name, part in parts if is_index(part) and part.numel()}


def contents_of(given: Mapping[str, Any]) -> tuple[dict[str, Any], list[str]]:
    """Copy the first elements of integer tensors, where no CUDA graph is being captured.

    Returns:
        The contents by name, and the names of tensors that hold addresses of memory.
    """
    contents, addresses = {}, []
    for name, tensor in _indices(given).items():
        try:
            table = values_of(tensor, "")
        except torch.OutOfMemoryError:
            continue
        if not isinstance(table, str) and len(table.values):
            values = table.values[:MOST_ELEMENTS]
            known = values[values != 0]
            if values.dtype.itemsize == 8 and len(known) and known.min() >= _ADDRESSES[0]:
                addresses += [name] if known.max() < _ADDRESSES[1] else []
            packed = base64.b64encode(zlib.compress(values.tobytes())).decode()
            contents[name] = {"dtype": str(values.dtype), "zlib": packed}
    return contents, addresses


def _grid(request: TuningRequest) -> dict[str, Any]:
    """Evaluate the grid of each config; keep its sizes by the config's values that it reads."""
    problem = request.problem
    read: set[str] = set()
    rows: list[_Row] = []
    failure: Failure | None = None
    for _, config in zip(range(_MOST_CONFIGS), request.configs(), strict=False):
        row = _grid_row(problem, config, read)
        if isinstance(row, Failure):
            failure = row
        else:
            rows.append(row)
    if not rows and failure is not None:
        raise InputError(failure.detail)
    everything = dict.fromkeys(name for values, _ in rows for name in values)
    names = [name for name in everything if name in read and name not in problem.arguments]
    table = {_at(names, values): sizes for values, sizes in rows}
    return {"reads": names, "sizes": [[list(at), list(sizes)] for at, sizes in table.items()]}


_Row = tuple[dict[str, Any], tuple[int, int, int]]


def _at(names: Sequence[str], values: Mapping[str, Any]) -> tuple[Any, ...]:
    return tuple(grid_value(values.get(name)) for name in names)


def _grid_row(problem: Problem, config: Config, read: set[str]) -> _Row | Failure:
    """Return a launch's values with a config, and its grid, or why it cannot be computed."""

    def work() -> _Row:
        values = problem.bind(config)
        return values, problem.grid_sizes(problem.grid_at(config, values, read), config)

    try:
        return guarded("input", work)
    except AsmtuneError as error:
        return Failure("input", "grid", str(error))


def _home(function: Any, kernel: str) -> tuple[str, str | None, bool]:
    """Return the name and file of the module that holds a kernel's autotuner.

    The third value tells whether one does; else they are of the module that defines the function.
    """
    own = function.__module__
    is_held = own in sys.modules and _holds(sys.modules[own], kernel)
    if not is_held:
        other = _holder(kernel, len(sys.modules))
        own, is_held = other or own, other is not None
    file = getattr(sys.modules.get(own), "__file__", None) or inspect.getsourcefile(
        python_function(function)
    )
    return own, os.path.abspath(file) if file else None, is_held  # noqa: PTH100 - a link stays one


@lru_cache(maxsize=1024)  # it takes 0.2 s in a program with 3,000 modules
def _holder(kernel: str, _: int) -> str | None:
    """Search all modules for a kernel's autotuner; anew if there are more modules."""
    modules = list(sys.modules.items())
    return next((name for name, module in modules if _holds(module, kernel)), None)


def _holds(module: Any, kernel: str) -> bool:
    return any(tuner_name(tuner) == kernel for tuner in autotuners_in(module))
