"""Rows of a bench run: the stored config of each kernel, shape and dtype that is timed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from asmtune.base.errors import InputError
from asmtune.base.settings import Settings
from asmtune.core.config import Config
from asmtune.core.failures import required
from asmtune.core.inputs.shapes import ShapeSource, shapes_of
from asmtune.core.kernel_files import kernel_names
from asmtune.core.kernel_module import KernelModule, Shape, load_kernel_module
from asmtune.core.problem import Problem
from asmtune.core.space.space import own_config
from asmtune.store.lookup import StoreLookup
from asmtune.store.shipped import find_tuned
from asmtune.studies.regression.run import BenchSubject, Missed
from asmtune.studies.stored import KernelSource, existing_store, kernel_module, reference_of
from asmtune.studies.tuning_queue import TuningQueue


@dataclass(frozen=True)
class BenchRow:
    """A row that can be timed, with all that another process needs to build it.

    Attributes:
        reference: the kernel module's name, or the absolute path of its file.
        subject: kernel, shape and dtype, which identify the row.
        config: the stored config.
        layer: where it is stored: "store" or "shipped".
        remark: why the record is stale; empty if it is not.
    """

    reference: str
    subject: BenchSubject
    config: Config
    layer: str
    remark: str


@dataclass(frozen=True)
class BenchPlan:
    """The rows of a bench run before any is timed.

    Attributes:
        device: the GPU's name.
        rows: what will be timed.
        missed: shapes that were asked for and have no usable stored config.
        unstored: number of the modules' own shapes and dtypes without a stored config, by
            kernel; these are left out.
    """

    device: str
    rows: tuple[BenchRow, ...]
    missed: tuple[Missed, ...]
    unstored: Mapping[str, int]


@dataclass
class BenchRequest:
    """Kernels, shapes and dtype to time.

    Attributes:
        kernels: names, files or modules; empty for all that come with asmtune.
        shapes, shapes_file, dtype: as `asmtune tune` takes them. Without shapes, those of the
            modules' own for which a config is stored.
        device: the GPU's name.
        unstored: number of a module's own shapes and dtypes without a stored config, by
            kernel; filled by `rows`.
    """

    kernels: Sequence[KernelSource]
    shapes: Sequence[ShapeSource]
    shapes_file: Path | None
    dtype: str | None
    device: str
    unstored: dict[str, int] = field(default_factory=dict)

    def plan(self, settings: Settings) -> BenchPlan:
        """Splits the rows into those that can be timed and those that cannot.

        Raises:
            InputError: as `rows`.
        """
        rows = self.rows(settings)
        return BenchPlan(
            device=self.device,
            rows=tuple(row for row in rows if isinstance(row, BenchRow)),
            missed=tuple(row for row in rows if not isinstance(row, BenchRow)),
            unstored=self.unstored,
        )

    def rows(self, settings: Settings) -> list[BenchRow | Missed]:
        """Returns a row for each kernel, shape and dtype, each subject once.

        Raises:
            InputError: a kernel, shape or dtype is unknown, or two kernels have one name.
        """
        rows: dict[str, BenchRow | Missed] = {}
        modules: dict[str, str] = {}
        for kernel in self.kernels or kernel_names():
            module, reference = kernel_module(kernel), reference_of(kernel)
            if modules.setdefault(module.name, reference) != reference:
                raise InputError(
                    f"two kernels are called {module.name}: {modules[module.name]} and "
                    f"{reference}; time them in two runs"
                )
            for row in self._module_rows(module, reference, settings):
                rows.setdefault(row.subject.identity, row)
        return list(rows.values())

    def _module_rows(
        self, module: KernelModule, reference: str, settings: Settings
    ) -> Iterator[BenchRow | Missed]:
        is_chosen = bool(self.shapes or self.shapes_file)
        sizes = shapes_of(module, self.shapes, self.shapes_file)
        has_one_dtype = self.dtype is not None or is_chosen
        dtypes = [module.check_dtype(self.dtype)] if has_one_dtype else module.dtypes
        space = required(f"space of kernel {module.name}", module.space)
        for dtype in dtypes:
            queue = TuningQueue(module, dtype, space, reference)
            for shape, problem in zip(sizes, queue.check(sizes), strict=True):
                row = self._row(queue, shape, problem, settings)
                if isinstance(row, BenchRow) or is_chosen:
                    yield row
                else:
                    self.unstored[module.name] = self.unstored.get(module.name, 0) + 1

    def _row(
        self, queue: TuningQueue, sizes: Shape, problem: Problem, settings: Settings
    ) -> BenchRow | Missed:
        name = queue.module.name
        subject = BenchSubject(name, dict(sizes), queue.dtype)
        key = queue.launched(problem).identity(self.device)
        lookup = find_tuned(*key, existing_store(settings))
        command = f"asmtune tune {queue.reference} --shape {_assignments(sizes)}"
        advice = f"{command} --dtype {queue.dtype}"
        if lookup.record is None:
            why = f" ({lookup.detail})" if lookup.outcome == "corrupt" else ""
            return Missed(subject, "unknown", f"no config is stored{why}: {advice}")
        config = own_config(lookup.record.winner, queue.space, problem.shape)
        if config is None:
            reason = "the stored config is none of the space any more"
            return Missed(subject, "unknown", f"{reason}: {advice}")
        remark = "" if lookup.outcome == "hit" else _stale_remark(lookup)
        return BenchRow(queue.reference, subject, config, lookup.layer, remark)


def row_to_json(row: BenchRow) -> dict[str, Any]:
    """Converts to JSON values what a process needs to time a row."""
    return {
        "reference": row.reference,
        "sizes": dict(row.subject.shape),
        "dtype": row.subject.dtype,
        "config": row.config.to_dict(),
    }


def problem_of(row: Mapping[str, Any], place: str) -> tuple[Problem, Config]:
    """Makes the launch of a row of `row_to_json`, and finds the space's own config for it.

    Raises:
        InputError: the module cannot make the launch, or its space has no such config.
    """
    module = load_kernel_module(row["reference"])
    make = module.problem
    problem = required(f"kernel {module.name}", lambda: make(row["sizes"], row["dtype"], place))
    config = own_config(Config.from_dict(row["config"]), module.space(), problem.shape)
    if config is None:
        raise InputError(f"kernel {module.name}: its space has changed meanwhile; bench again")
    return problem, config


def _stale_remark(lookup: StoreLookup) -> str:
    """Says what differs from the record, without the digests."""
    parts = (part.partition(":")[0] for part in lookup.detail.split("; "))
    return f"config of an older record: {', '.join(parts)}"


def _assignments(shape: Shape) -> str:
    return ",".join(f"{name}={value}" for name, value in shape.items())
