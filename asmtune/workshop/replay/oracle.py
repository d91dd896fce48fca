"""Files of recorded timings, the ground truth that the funnel is replayed against.

The format is JSON, gzipped or not: `{"meta": {...}, "tasks": [{"kernel",
"shape", "dtype", "rows": [{"config", "ms"} or {"config", "error"}]}]}`.
"""

from __future__ import annotations

import gzip
import json
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from asmtune.base.errors import OracleError
from asmtune.base.limited_read import MIB, read_limited, unzipped
from asmtune.core.config import OPTION_AXES, Config


@dataclass(frozen=True)
class Row:
    """A recorded config.

    Attributes:
        config: the config.
        ms: device time in milliseconds; None if it did not run.
        error: why it did not run; None if it ran.
        resources: recorded "regs", "spills" and "shared", where present.
    """

    config: Config
    ms: float | None
    error: str | None
    resources: Mapping[str, int]


@dataclass(frozen=True)
class Task:
    """A kernel on one shape, with every recorded config."""

    kernel: str
    shape: Mapping[str, Any]
    dtype: str
    rows: tuple[Row, ...]

    @property
    def name(self) -> str:
        """Return the kernel and its shape, for messages."""
        return f"{self.kernel} " + " ".join(f"{k}={v}" for k, v in self.shape.items())


@dataclass(frozen=True)
class Oracle:
    """A file of recorded timings.

    Attributes:
        device: name of the GPU, as its driver reports it.
        tasks: in the file's order.
        versions: triton and torch versions of the timings, where known.
    """

    device: str
    tasks: tuple[Task, ...]
    versions: Mapping[str, str] = field(default_factory=dict)


def load_oracle(path: Path) -> Oracle:
    """Read a file of recorded timings.

    Raises:
        OracleError: it cannot be read, is cut off, or a field is missing or wrong; names the
            task, row and field.
    """
    document = _document(path)
    try:
        device = str(document["meta"]["device"])
        meta = document["meta"]
        versions = {name: str(meta[name]) for name in ("triton", "torch") if name in meta}
        tasks = document["tasks"]
    except (KeyError, TypeError) as error:
        raise OracleError(
            f"oracle {path}: no {error}; expected {{'meta': {{'device'}}, 'tasks'}}"
        ) from error
    if not isinstance(tasks, list) or not tasks:
        raise OracleError(f"oracle {path}: 'tasks' is not a list with at least one task")
    read = tuple(_task(path, number, task) for number, task in enumerate(tasks))
    return Oracle(device, read, versions)


def _document(path: Path) -> Any:
    try:
        data = read_limited(path, 1024 * MIB)
        if data[:2] == b"\x1f\x8b":
            data = unzipped(data, 1024 * MIB)
        return json.loads(data)
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise OracleError(f"oracle {path}: damaged or cut off: {error}") from error
    except (ValueError, RecursionError) as error:
        raise OracleError(f"oracle {path}: not whole JSON, perhaps cut off: {error}") from error
    except OSError as error:
        raise OracleError(f"oracle {path}: {error.strerror}") from error


def _task(path: Path, number: int, task: Any) -> Task:
    where = f"oracle {path}, task {number}"
    try:
        rows = tuple(_row(where, index, row) for index, row in enumerate(task["rows"]))
        result = Task(str(task["kernel"]), dict(task["shape"]), str(task["dtype"]), rows)
    except OracleError:
        raise
    except KeyError as error:
        raise OracleError(f"{where}: no field {error}") from error
    except (AttributeError, TypeError, ValueError) as error:
        raise OracleError(f"{where}: not of the oracle's form: {error}") from error
    if all(row.ms is None for row in rows):
        raise OracleError(f"{where} ({result.name}): no config was timed")
    return result


def _row(where: str, index: int, row: Any) -> Row:
    ms = row.get("ms")
    if ms is not None and not (isinstance(ms, int | float) and 0 < ms < float("inf")):
        raise OracleError(f"{where}, row {index}: ms is {ms!r}, expected a number above 0")
    error = row.get("error")
    if ms is None and error is None:
        raise OracleError(f"{where}, row {index}: neither 'ms' nor 'error'")
    resources = {name: int(row[name]) for name in ("regs", "spills", "shared") if name in row}
    config = _config(f"{where}, row {index}", row["config"])
    return Row(config, ms, None if error is None else str(error), resources)


def _config(where: str, values: Any) -> Config:
    config = Config.from_dict(values)
    for name in OPTION_AXES:
        value = getattr(config, name)
        if type(value) is not int and not (name == "maxnreg" and value is None):
            raise OracleError(f"{where}: {name} is {value!r}, expected a whole number")
    hash(config)  # a TypeError where a value is a list or a mapping
    return config
