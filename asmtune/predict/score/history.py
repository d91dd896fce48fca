"""The user's own recordings: timings of the store, and files of `asmtune model train`.

Both have the form of the shipped training rows (`examples`). A run's rows are put into the store
when the run ends; a file counts if it lies in the folder of `Settings.training_dir`.
"""

from __future__ import annotations

import base64
import binascii
import io
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Final

import numpy as np
from numpy.typing import NDArray

from asmtune.base.errors import InputError, ParseError, StoreError
from asmtune.base.fingerprint import versions
from asmtune.base.settings import Settings
from asmtune.base.trust import trusted_folder
from asmtune.core.config import Config
from asmtune.core.hardware.model import Target
from asmtune.core.records.tuned import TuneKey
from asmtune.core.records.verdicts import Verdict
from asmtune.predict.score.examples import MOST_ROWS, Examples, TaskRows
from asmtune.predict.score.vectors import Scale, base_columns, schema
from asmtune.store.lookup import StoredExamples
from asmtune.store.shipped import store_exists

if TYPE_CHECKING:
    from asmtune.store.safe_store import SafeStore

FEWEST: Final = 5
"""Timed configs that a run's rows are kept from."""

MOST_OWN: Final = 1200
MOST_OTHERS: Final = 800
"""Rows of the kernel itself, and of others, that one correction is fitted on."""

LEAST_OF_A_TASK: Final = 24
"""Rows of a task, where many share the limits."""


@dataclass(frozen=True, eq=False)
class RecordedTask:
    """A recorded task of the user's.

    Attributes:
        rows: its kernel, shape, dtype and rows.
        target: name of the target.
        device: the driver's name for it.
        source: the file that it comes from; None for the store.
    """

    rows: TaskRows
    target: str
    device: str
    source: Path | None = None

    @property
    def count(self) -> int:
        """Number of timings."""
        return len(self.rows.slowdown)

    @property
    def identity(self) -> str:
        """Return a name that runs of one kernel, shape, dtype and device share."""
        shape = sorted(self.rows.shape.items())
        return f"{self.rows.kernel} {shape} {self.rows.dtype} {self.device}"

    def is_of(self, kernel: str) -> bool:
        """Return whether it is of a kernel, by its full name.

        The store has full names, `module.function`; files of `asmtune model train` have modules.
        """
        own = self.rows.kernel
        return own == kernel or ("." not in own and own in kernel.split(".")[-2:-1])

    def at(self, rows: NDArray[np.bool_]) -> RecordedTask:
        """Return some of its rows."""
        part = replace(self.rows, base=self.rows.base[rows], slowdown=self.rows.slowdown[rows])
        return replace(self, rows=part)


@dataclass(frozen=True)
class History:
    """The recordings of a store and of a folder of training rows, read on first use.

    Attributes:
        settings: name the store and the folder; neither need exist, and neither is made.
    """

    settings: Settings

    def nearest(self, kernel: str, target: str) -> tuple[RecordedTask, ...]:
        """Return the tasks nearest to a kernel and a target, with a limited number of rows."""
        tasks = [*self._stored(kernel), *self._filed]
        tasks.sort(key=lambda task: task.target != target)
        own = [task for task in tasks if task.is_of(kernel)]
        others = [task for task in tasks if not task.is_of(kernel)]
        return (*_limited(own, MOST_OWN), *_limited(others, MOST_OTHERS))

    @property
    def faults(self) -> tuple[str, ...]:
        """Return a line for the store and for each file that cannot be used."""
        store = (self._store,) if isinstance(self._store, str) else ()
        return (*store, *(problem for _, problem in self._files if isinstance(problem, str)))

    @property
    def folder(self) -> Path:
        """Return the folder of files of `asmtune model train`."""
        return self.settings.training_dir

    def origin(self, tasks: Sequence[RecordedTask]) -> str:
        """Say where tasks come from: the store, files, and their devices."""
        files = {task.source for task in tasks if task.source is not None}
        places = ["this store"] if any(task.source is None for task in tasks) else []
        if files:
            places.append(f"{len(files)} file{'s' if len(files) > 1 else ''} of {self.folder}")
        devices = ", ".join(dict.fromkeys(task.device for task in tasks))
        return f"{' and '.join(places)} on {devices}"

    def _stored(self, kernel: str) -> list[RecordedTask]:
        """Read the newest runs of the kernel, then of others, without those of another schema."""
        tasks: list[RecordedTask] = []
        store = self._store
        for run in () if store is None or isinstance(store, str) else store.examples(kernel):
            examples = _decoded(run)
            if examples is not None:
                tasks += _tasks(examples, None)
        return tasks

    @cached_property
    def _store(self) -> SafeStore | str | None:
        """Return the user's store, None if there is none, or why it cannot be used."""
        where = self.settings.store_where
        try:
            if "://" not in where and not store_exists(Path(where).expanduser()):
                return None
            from asmtune.store.safe_store import existing_store  # loads SQLAlchemy

            return existing_store(self.settings)
        except (InputError, StoreError) as error:
            return f"{error}; its timings do not refine the ranking"

    @cached_property
    def _filed(self) -> list[RecordedTask]:
        parts = [(path, part) for path, part in self._files if isinstance(part, Examples)]
        return [task for path, part in parts for task in _tasks(part, path)]

    @cached_property
    def _files(self) -> list[tuple[Path, Examples | str]]:
        if not self.settings.training:
            try:
                trusted_folder(self.folder)
            except OSError as error:
                return [(self.folder, f"{error}; its files do not refine the ranking")]
        return [(path, _read(path)) for path in sorted(self.folder.glob("*.npz"))]


def run_rows(
    key: TuneKey, target: Target, verdicts: Iterable[Verdict], us: Mapping[Config, float]
) -> str | None:
    """Encode the rows of a run for the store; None where too few configs were timed.

    Args:
        key: the run's key.
        target: the machine.
        verdicts: verdicts of compiled configs, with their features.
        us: microseconds by config.
    """
    known = [(v.config, v.features) for v in verdicts if v.features is not None]
    timed = np.array([config in us for config, _ in known], dtype=np.bool_)
    if timed.sum() < FEWEST:
        return None
    base = base_columns([features for _, features in known], target)
    times = np.array([us[config] for config, _ in known if config in us])
    task = TaskRows(
        kernel=key.kernel,
        shape=dict(key.shape),
        dtype=" ".join(dict.fromkeys(key.dtypes.values())),
        base=base[timed],
        scale=Scale.of(base),
        slowdown=np.log(times / times.min()).astype(np.float32),
    )
    about = {"device": key.device, "compiled": versions()}
    return base64.b64encode(Examples((task,), target.name, schema(), about).packed()).decode()


def _decoded(run: StoredExamples) -> Examples | None:
    """Read the rows of a run; None if an asmtune with other features has written them."""
    try:
        data = base64.b64decode(run.rows, validate=True)
        return Examples.parse(io.BytesIO(data), f"run of {run.key.kernel}")
    except (ParseError, binascii.Error):
        return None


def _read(path: Path) -> Examples | str:
    try:
        return Examples.load(path)
    except ParseError as error:
        return f"{error}; it was left out"


def _tasks(examples: Examples, source: Path | None) -> list[RecordedTask]:
    device = str(examples.provenance.get("device", examples.target))
    return [RecordedTask(task, examples.target, device, source) for task in examples.tasks]


def _limited(tasks: Sequence[RecordedTask], most: int) -> list[RecordedTask]:
    """Return the first tasks, thinned, with at most `most` rows in all."""
    if not tasks:
        return []
    each = min(MOST_ROWS, max(LEAST_OF_A_TASK, most // len(tasks)))
    return [replace(task, rows=task.rows.thinned(each)) for task in tasks[: most // each]]
