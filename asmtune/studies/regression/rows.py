"""What `asmtune bench` times: the stored config of each shape and dtype that was asked for."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from asmtune.base.errors import InputError
from asmtune.base.settings import Settings
from asmtune.core.config import Config
from asmtune.core.failures import required
from asmtune.core.inputs.shapes import shapes_of
from asmtune.core.kernel_module import KernelModule, Shape, kernel_names, load_kernel_module
from asmtune.core.problem import Problem
from asmtune.store.lookup import StoreLookup
from asmtune.store.shipped import find_tuned
from asmtune.studies.regression.run import BenchSubject, Missed
from asmtune.studies.stored import existing_store
from asmtune.studies.tuning_queue import TuningQueue, reference_of


@dataclass(frozen=True)
class BenchRow:
    """A row that can be timed; what a process needs to make it again.

    Attributes:
        reference: the kernel module's name, or its file as any other folder knows it.
        subject: what the row is called by.
        config: what is stored.
        layer: where: "store" or "shipped".
        remark: why the record no longer holds; empty where it does.
    """

    reference: str
    subject: BenchSubject
    config: Config
    layer: str
    remark: str


@dataclass
class BenchRequest:
    """What was asked for.

    Attributes:
        kernels: names or files; all that come with asmtune where there are none.
        shapes, shapes_file, dtype: as `asmtune tune` takes them; where none of the first two
            is given, what is stored for the modules' own.
        device: the GPU's name.
        unstored: how many shapes and dtypes of a module's own nothing is stored for, by
            kernel; filled.
    """

    kernels: Sequence[str]
    shapes: Sequence[str]
    shapes_file: Path | None
    dtype: str | None
    device: str
    unstored: dict[str, int] = field(default_factory=dict)

    def rows(self, settings: Settings) -> list[BenchRow | Missed]:
        """A row for each kernel, shape and dtype, each subject once.

        Raises:
            InputError: a kernel, shape or dtype is unknown, or two kernels have one name.
        """
        found: dict[str, BenchRow | Missed] = {}
        modules: dict[str, str] = {}
        for kernel in self.kernels or kernel_names():
            module, reference = load_kernel_module(kernel), reference_of(kernel)
            if modules.setdefault(module.name, reference) != reference:
                raise InputError(
                    f"two kernels are called {module.name}: {modules[module.name]} and "
                    f"{reference}; time them in two runs"
                )
            for row in self._of(module, reference, settings):
                subject = row.subject
                found.setdefault(subject.identity, row)
        return list(found.values())

    def _of(
        self, module: KernelModule, reference: str, settings: Settings
    ) -> Iterator[BenchRow | Missed]:
        chosen = bool(self.shapes or self.shapes_file)
        sizes = shapes_of(module, self.shapes, self.shapes_file)
        given = self.dtype is not None or chosen
        dtypes = [module.check_dtype(self.dtype)] if given else module.dtypes
        space = required(f"space of kernel {module.name}", module.space)
        for dtype in dtypes:
            queue = TuningQueue(module, dtype, space, reference)
            for shape, problem in zip(sizes, queue.check(sizes), strict=True):
                row = self._row(queue, shape, problem, settings)
                if isinstance(row, BenchRow) or chosen:
                    yield row
                else:
                    self.unstored[module.name] = self.unstored.get(module.name, 0) + 1

    def _row(
        self, queue: TuningQueue, sizes: Shape, problem: Problem, settings: Settings
    ) -> BenchRow | Missed:
        name = queue.module.name
        subject = BenchSubject(name, dict(sizes), queue.dtype)
        found = find_tuned(*queue.launched(problem).identity(self.device), existing_store(settings))
        command = f"asmtune tune {queue.reference} --shape {_assignments(sizes)}"
        advice = f"{command} --dtype {queue.dtype}"
        if found.record is None:
            why = f" ({found.detail})" if found.outcome == "corrupt" else ""
            return Missed(subject, "unknown", f"no config is stored{why}: {advice}")
        config = queue.space.matching(found.record.winner, **problem.shape)
        if config is None:
            said = "the stored config is none of the space any more"
            return Missed(subject, "unknown", f"{said}: {advice}")
        remark = "" if found.outcome == "hit" else _stale(found)
        return BenchRow(queue.reference, subject, config, found.layer, remark)


def wanted_to_json(row: BenchRow) -> dict[str, Any]:
    """What a process needs of a row, as JSON values."""
    return {
        "reference": row.reference,
        "sizes": dict(row.subject.shape),
        "dtype": row.subject.dtype,
        "config": row.config.to_dict(),
    }


def problem_of(row: Mapping[str, Any], place: str) -> tuple[Problem, Config]:
    """The launch of a row of `wanted_to_json`, and the space's own config for it.

    Raises:
        InputError: the module cannot make it, or has no such config.
    """
    module = load_kernel_module(row["reference"])
    make = module.problem
    problem = required(f"kernel {module.name}", lambda: make(row["sizes"], row["dtype"], place))
    config = module.space().matching(Config.from_dict(row["config"]), **problem.shape)
    if config is None:
        raise InputError(f"kernel {module.name}: its space has changed meanwhile; bench again")
    return problem, config


def _stale(found: StoreLookup) -> str:
    """What differs, without the digits."""
    parts = (part.partition(":")[0] for part in found.detail.split("; "))
    return f"config of an older record: {', '.join(parts)}"


def _assignments(shape: Shape) -> str:
    return ",".join(f"{name}={value}" for name, value in shape.items())
