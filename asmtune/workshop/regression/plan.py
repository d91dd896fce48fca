"""Rows of a bench run: kernels and functions with their stored configs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import Any

from asmtune.base.errors import InputError
from asmtune.base.settings import Settings
from asmtune.cli.kernel_arguments import KernelArguments
from asmtune.core.config import Config
from asmtune.core.failures import required
from asmtune.core.inputs.shapes import ShapeSource, named_text, shapes_of
from asmtune.core.kernel_module import KernelModule, Shape, kernel_names, load_kernel_module
from asmtune.core.problem import Problem
from asmtune.report.cells import words
from asmtune.runtime.offline.kernel_sources import KernelSource, kernel_module, reference_of
from asmtune.runtime.offline.tuning_queue import HostLaunches, TuningQueue, target_here
from asmtune.store.interchange import find_tuned
from asmtune.store.lookup import StoreLookup
from asmtune.store.safe_store import existing_store
from asmtune.triton_api.autotuners import autotuner_in
from asmtune.workshop.regression.run import BenchPlan, BenchRow, BenchSubject, UntimedSubject


@dataclass(frozen=True)
class BenchRequest:
    """Kernels, shapes and dtype to time.

    Attributes:
        kernels: names, files, modules, or functions with their arguments; empty for all that come
            with asmtune.
        shapes, dtype: as `asmtune tune` takes them. Without shapes, those of the modules' own for
            which a config is stored.
    """

    kernels: Sequence[KernelSource | KernelArguments]
    shapes: Sequence[ShapeSource]
    dtype: str | None
    device: str

    def plan(self, settings: Settings) -> BenchPlan:
        """Split the kernels, shapes and dtypes, each once, into what can be timed and what cannot.

        Raises:
            InputError: a kernel, shape or dtype is unknown, or two kernels have one name.
        """
        rows: dict[str, BenchRow | UntimedSubject] = {}
        modules: dict[str, str] = {}
        for kernel in self.kernels or kernel_names():
            if isinstance(kernel, KernelArguments):
                name, reference = kernel.kernel.rpartition(":")[2], kernel.kernel
                made = self._launch_rows(kernel, settings)
            else:
                module, reference = kernel_module(kernel), reference_of(kernel)
                name, made = module.name, self._module_rows(module, reference, settings)
            if modules.setdefault(name, reference) != reference:
                raise InputError(
                    f"two kernels are called {name}: {modules[name]} and "
                    f"{reference}; time them in two runs"
                )
            for row in made:
                rows.setdefault(row.subject.identity, row)
        return BenchPlan(
            device=self.device,
            rows=tuple(row for row in rows.values() if isinstance(row, BenchRow)),
            missed=tuple(row for row in rows.values() if isinstance(row, UntimedSubject)),
        )

    def _module_rows(
        self, module: KernelModule, reference: str, settings: Settings
    ) -> Iterator[BenchRow | UntimedSubject]:
        sizes = shapes_of(module, self.shapes)
        has_one_dtype = self.dtype is not None or bool(self.shapes)
        dtypes = [module.check_dtype(self.dtype)] if has_one_dtype else module.dtypes
        space = required(f"space of kernel {module.name}", module.space)
        for dtype in dtypes:
            queue = TuningQueue(module, dtype, space, reference)
            for shape, problem in zip(sizes, queue.check(sizes), strict=True):
                row = self._row(queue, shape, problem, settings)
                if isinstance(row, BenchRow) or self.shapes:
                    yield row

    def _row(
        self, queue: TuningQueue, sizes: Shape, problem: Problem, settings: Settings
    ) -> BenchRow | UntimedSubject:
        subject = BenchSubject(queue.module.name, dict(sizes), queue.dtype)
        key = queue.launched(problem).identity(self.device)
        lookup = find_tuned(*key, existing_store(settings))
        own = partial(queue.space.matching, **problem.shape)
        assignments = ",".join(f"{name}={value}" for name, value in sizes.items())
        command = f"asmtune tune {queue.reference} --shape {assignments} --dtype {queue.dtype}"
        return _stored_row(subject, queue.reference, lookup, own, command)

    def _launch_rows(
        self, function: KernelArguments, settings: Settings
    ) -> Iterator[BenchRow | UntimedSubject]:
        """Yield a row for each launch of a function; one that nothing tunes is timed as it is."""
        launches, counts = launches_of(function), Counter[str]()
        arguments = dict(map(named_text, function.values))
        for place, loaded in enumerate(launches.launches):
            problem, called = loaded.problem, function.kernel.rpartition(":")[2]
            name = problem.name if called == problem.name else f"{called}/{problem.name}"
            counts[name] += 1
            name += f"#{counts[name]}" if counts[name] > 1 else ""
            dtypes = dict.fromkeys(problem.dtypes.values())
            subject = BenchSubject(name, arguments, ",".join(dtypes))
            row: BenchRow | UntimedSubject
            if autotuner_in(problem.kernel) is None and not launches.is_replaced:
                config = loaded.space.first(**problem.shape)
                row = BenchRow(function.kernel, subject, config, "launch", "")
            else:
                request = launches.request(loaded, self.device)
                lookup = find_tuned(request.key, request.expected, existing_store(settings))
                own = partial(request.space.matching, **request.problem.shape)
                command = f"asmtune tune {function.kernel}, with the same options, finds one"
                row = _stored_row(subject, function.kernel, lookup, own, command)
            if isinstance(row, BenchRow):
                made_by = asdict(function)
                row = replace(row, function=made_by, place=place, notes=loaded.notes)
            yield row


def launches_of(function: KernelArguments) -> HostLaunches:
    """Call a function as on this machine's GPU; return its launches, on meta tensors."""
    return HostLaunches(function.load(target_here()), bool(function.axes or function.space))


def _stored_row(
    subject: BenchSubject,
    reference: str,
    lookup: StoreLookup,
    own: Callable[[Config], Config | None],
    advice: str,
) -> BenchRow | UntimedSubject:
    """Make the row of what a store has answered; `own` finds a config in the space."""
    if lookup.record is None:
        why = f" ({lookup.detail})" if lookup.outcome == "corrupt" else ""
        return UntimedSubject(subject, "unknown", f"no config is stored{why}: {advice}")
    config = own(lookup.record.winner)
    if config is None:
        reason = "the stored config is not in the space any more"
        return UntimedSubject(subject, "unknown", f"{reason}: {advice}")
    remark = "" if lookup.outcome == "hit" else _stale_remark(lookup)
    return BenchRow(reference, subject, config, lookup.layer, remark)


def row_to_json(row: BenchRow) -> dict[str, Any]:
    """Convert to JSON values what a process needs to time a row."""
    return {
        "reference": row.reference,
        "sizes": dict(row.subject.shape),
        "dtype": row.subject.dtype,
        "config": row.config.to_dict(),
        "function": row.function,
        "place": row.place,
    }


def problem_of(row: Mapping[str, Any], place: str) -> tuple[Problem, Config]:
    """Make the launch of a row of `row_to_json`, and find the space's own config for it.

    Raises:
        InputError: the module cannot make the launch, or its space has no such config.
    """
    if row.get("function"):
        launches = launches_of(KernelArguments(**row["function"]))
        request = launches.request(launches.launches[row["place"]], "", place)
        problem, space, name = request.problem, request.space, row["reference"]
    else:
        module = load_kernel_module(row["reference"])
        make, space, name = module.problem, module.space(), module.name
        problem = required(f"kernel {name}", lambda: make(row["sizes"], row["dtype"], place))
    config = space.matching(Config.from_dict(row["config"]), **problem.shape)
    if config is None:
        raise InputError(f"kernel {name}: its space has changed meanwhile; bench again")
    return problem, config


def _stale_remark(lookup: StoreLookup) -> str:
    parts = (part.partition(":")[0] for part in lookup.detail.split("; "))
    return f"config of an older record: {', '.join(parts)}"


def plan_lines(plan: BenchPlan) -> Iterator[str]:
    """Say what cannot be timed, and which configs may be out of date."""
    for missed in plan.missed:
        yield f"{missed.subject.kernel} {words(missed.subject.shape)}: {missed.reason}"
    yield from dict.fromkeys(note for row in plan.rows for note in row.notes)
    stale = [row for row in plan.rows if row.remark]
    if stale:
        yield (
            f"{len(stale)} of {len(plan.rows)} rows are timed on configs of older records, "
            f"such as {stale[0].subject.kernel} ({stale[0].remark})"
        )
