"""`KeyRecorder` writes each key that a program meets to a file, for `asmtune tune --from`."""

from __future__ import annotations

import base64
import os
import sys
import warnings
import zlib
from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache, partial
from itertools import islice
from pathlib import Path
from typing import Any, Final

import torch

from asmtune.base.errors import InputError
from asmtune.base.text import user_stacklevel
from asmtune.core.config import Config
from asmtune.core.failures import of_one_config
from asmtune.core.index_values import is_index, values_of
from asmtune.core.problem import Problem
from asmtune.core.records.artifacts import Failure
from asmtune.measure.bench.argument_codec import Packing
from asmtune.measure.checks.effects import tensor_parts
from asmtune.runtime.calls import KernelCall, is_capturing
from asmtune.runtime.decorator import triton_autotuners
from asmtune.runtime.events import LAUNCHING_MODULES, key_text
from asmtune.runtime.offline.recorded_keys import (
    MOST_ELEMENTS,
    RecordedKey,
    add_keys,
    grid_value,
    read_keys,
    tuner_name,
)
from asmtune.store.codec import key_digest
from asmtune.triton_api.interpreter import INTERPRET, is_interpreting
from asmtune.triton_api.jit_functions import jit_function
from asmtune.tuning.request import TuningRequest

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
    "no module holds the kernel, so that no other process finds it: tune it in the program, or "
    "keep it in a variable of a module"
)
_MOST_CONFIGS: Final = 20_000  # whose grids are evaluated: at most a second


class RecordWarning(UserWarning):
    """A key could not be written to the file of `asmtune run --record`."""


class KeyRecorder:
    """Writes each key to a file as soon as it is met, so that no end of the program loses it."""

    def __init__(self, path: Path, buckets: tuple[str, ...] = ()) -> None:
        """Read the file if there is one; else make it.

        Raises:
            InputError: it cannot be read or written, or holds something else.
        """
        self._path, self._buckets = path.absolute(), buckets
        try:
            add_keys(self._path, ())
        except OSError as error:
            raise InputError(f"--record {path}: {error.strerror}; name another file") from error
        self._before = {key_digest(key.key()) for key in read_keys(self._path)}
        self._written = set(self._before)
        self._met: dict[str, None] = {}

    def summary(self) -> str:
        """Return a line on the keys that were added to the file, for the program's end."""
        new = len(self._met.keys() & self._written - self._before)
        if not self._met and is_interpreting():
            told = (
                f"{INTERPRET} is set: kernels are interpreted, and an interpreted launch has no key"
            )
            return f"nothing can be recorded in {self._path}, since {told}; run without it"
        if not new:
            return f"no new key was met; {self._path} has {_keys(len(self._before))}"
        added = f"{new} of {_keys(len(self._met))} met were new to {self._path}"
        return f"{added}; `asmtune tune --from {self._path}` tunes them"

    def launched(self, request: TuningRequest, call: KernelCall) -> None:
        """Write the key of a launch, before its kernel changes the arguments."""
        digest = key_digest(replace(request.key, device=""))
        # Not under a lock: a child that is forked meanwhile would wait for it for ever.
        is_first = digest not in self._met
        self._met[digest] = None
        if digest in self._written:
            return
        # Tensors of a subclass, and the user's grid, may raise anything: the launch goes on.
        work = partial(recorded_key, request, call, self._buckets)
        recorded = of_one_config("input", "launch", work)
        if isinstance(recorded, Failure):
            why = " ".join(recorded.detail.split())
        else:
            try:
                add_keys(self._path, (recorded,))
            except OSError as error:
                why = str(error)
            else:
                self._written.add(digest)
                return
        if is_first:
            text = f"{key_text(request.key)}: not recorded in {self._path}: {why}"
            level = user_stacklevel(*LAUNCHING_MODULES)
            warnings.warn(f"{text}; the program goes on", RecordWarning, stacklevel=level)


def _keys(count: int) -> str:
    return f"{count} key{'' if count == 1 else 's'}"


def recorded_key(
    request: TuningRequest, call: KernelCall, buckets: tuple[str, ...] = ()
) -> RecordedKey:
    """Describe a launch so that another process can make one of the same key.

    Raises:
        InputError: that is impossible; says why.
    """
    key, function = request.key, jit_function(request.problem.kernel)
    module = _holder(key.kernel, function.__module__, len(sys.modules))
    if module is None:
        raise InputError(_UNHELD)
    packing, given = Packing(by_name=True), {**call.positional, **call.kwargs}
    parts = tensor_parts(given)
    if any(getattr(part, "is_meta", False) for part in parts.values()):
        raise InputError(_TRACED)
    arguments = {name: packing.describe(v, f"argument {name}") for name, v in given.items()}
    indices = {name: part for name, part in parts.items() if is_index(part) and part.numel()}
    contents = contents_of(indices)
    if is_capturing() and indices.keys() - contents.keys():
        raise InputError(_CAPTURED)
    file = getattr(sys.modules[module], "__file__", None)
    return RecordedKey(
        kernel=key.kernel,
        module=module,
        file=os.path.abspath(file) if file else None,  # noqa: PTH100 - a link stays one
        shape=key.shape,
        dtypes=key.dtypes,
        device=key.device,
        source=request.expected.source,
        buckets=buckets,
        positional=tuple(call.positional),
        arguments=arguments,
        memory=tuple(region.to_json() for region in packing.regions.values()),
        contents=contents,
        grid=_grid(request),
    )


@lru_cache(maxsize=1024)  # it takes 0.2 s in a program with 3,000 modules
def _holder(kernel: str, own: str, _: int) -> str | None:
    """Search its own module, then all, for a kernel's autotuner; anew if there are more modules."""
    for name in (own, *sys.modules):
        if kernel in map(tuner_name, triton_autotuners(sys.modules.get(name))):
            return name
    return None


def contents_of(indices: Mapping[str, Any]) -> dict[str, Any]:
    """Copy the first elements of integer tensors, where no CUDA graph is being captured.

    Raises:
        InputError: a tensor holds addresses of memory.
    """
    contents = {}
    for name, tensor in indices.items():
        try:
            table = values_of(tensor, "")
        except torch.OutOfMemoryError:
            continue
        if isinstance(table, str) or not len(table.values):
            continue
        values = table.values[:MOST_ELEMENTS]
        known = values[values != 0]
        is_wide = values.dtype.itemsize == 8 and len(known)
        if is_wide and _ADDRESSES[0] <= known.min() and known.max() < _ADDRESSES[1]:
            raise InputError(
                f"argument {name} holds addresses, which mean nothing in another process: tune it "
                "in the program"
            )
        packed = base64.b64encode(zlib.compress(values.tobytes())).decode()
        contents[name] = {"dtype": str(values.dtype), "zlib": packed}
    return contents


def _grid(request: TuningRequest) -> dict[str, Any]:
    """Evaluate the grid of each config; keep its sizes by the config's values that it reads."""
    read: set[str] = set()
    work = partial(_grid_row, request.problem, read=read)
    found = [
        of_one_config("input", "grid", partial(work, config))
        for config in islice(request.configs(), _MOST_CONFIGS)
    ]
    rows = [row for row in found if not isinstance(row, Failure)]
    if not rows:
        raise InputError(next(row.detail for row in found if isinstance(row, Failure)))
    bound = {name for values, _ in rows for name in values}  # and not the kernel's own defaults
    names = sorted(read & bound - request.problem.arguments.keys())
    table = {tuple(grid_value(values.get(n)) for n in names): sizes for values, sizes in rows}
    return {"reads": names, "sizes": [[list(at), list(sizes)] for at, sizes in table.items()]}


def _grid_row(
    problem: Problem, config: Config, read: set[str]
) -> tuple[dict[str, Any], tuple[int, int, int]]:
    """Return a launch's values with a config, and its grid."""
    values = problem.bind(config)
    return values, problem.grid_sizes(problem.grid_at(config, values, read), config)
