"""What `asmtune roofline` looks at: kernels, their shapes, and what is stored for each."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from asmtune.base.errors import InputError
from asmtune.base.fingerprint import canonical
from asmtune.base.settings import Settings
from asmtune.core.failures import required
from asmtune.core.hardware.model import Target
from asmtune.core.inputs.shapes import Placed, parse_assignments, read_shapes
from asmtune.core.kernel_module import KernelModule, Shape, load_kernel_module
from asmtune.core.problem import Problem
from asmtune.core.records.tuned import TuneKey
from asmtune.store.lookup import StoreLookup
from asmtune.studies.roofline.sizes import is_sized
from asmtune.studies.roofline.survey import RooflineSubject
from asmtune.studies.stored import existing_store
from asmtune.studies.tuning_queue import TuningQueue


@dataclass(frozen=True)
class RooflineRequest:
    """The options of the same names, as they were given."""

    kernels: Sequence[str]
    shape: Sequence[str] = ()
    shapes: Path | None = None
    dtype: str | None = None

    def subjects(self, target: Target, settings: Settings) -> list[RooflineSubject]:
        """A launch for each kernel and each shape that is one of its own.

        Raises:
            InputError: a kernel is unknown, or refuses a shape; two have one name; a shape fits
                no kernel; or a kernel has none.
        """
        doubled = next((name for name in self.kernels if list(self.kernels).count(name) > 1), None)
        if doubled is not None:
            raise InputError(f"kernel {doubled!r} is given twice")
        modules = _modules(self.kernels)
        shapes = _shared(modules, self._placed())
        store = _Stored(target, settings)
        return [
            subject
            for module in modules
            for subject in _of_module(module, shapes[module.name], self.dtype, store)
        ]

    def _placed(self) -> list[Placed]:
        placed = [("--shape", parse_assignments(text, "--shape")) for text in self.shape]
        return placed + (read_shapes(self.shapes) if self.shapes is not None else [])


def _modules(kernels: Sequence[str]) -> list[KernelModule]:
    """Of each name one: points, and what is told of them, are known by it."""
    modules = [_module(kernel) for kernel in kernels]
    named: dict[str, str] = {}
    for kernel, module in zip(kernels, modules, strict=True):
        if (other := named.setdefault(module.name, kernel)) != kernel:
            raise InputError(
                f"two kernels are called {module.name}: {other} and {kernel}; give one of them"
            )
    return modules


def _module(kernel: str) -> KernelModule:
    if ":" in kernel:
        raise InputError(
            f"{kernel!r} is a plain function, whose tuned config has no key: write a kernel "
            "module (kernels/tiled_matmul.py is the template)"
        )
    return load_kernel_module(kernel)


def _shared(modules: Sequence[KernelModule], placed: Sequence[Placed]) -> dict[str, list[Shape]]:
    """Each kernel's shapes: of those given all that fit, else its module's first."""
    if not placed:
        return {module.name: _first(module) for module in modules}
    found: dict[str, dict[str, Shape]] = {module.name: {} for module in modules}
    for where, shape in placed:
        refusals = []
        for module in modules:
            try:
                checked = module.check_shape(shape)
            except InputError as error:
                refusals.append(f"{where}: {error}")
            else:
                found[module.name][canonical(checked)] = checked
        if len(refusals) == len(modules):
            raise InputError("; ".join(refusals[:1]))
    bare = next((name for name, own in found.items() if not own), None)
    if bare is not None:
        raise InputError(f"no shape fits kernel {bare}: give one more --shape, or leave it out")
    return {name: list(own.values()) for name, own in found.items()}


def _first(module: KernelModule) -> list[Shape]:
    if not module.shapes:
        raise InputError(f"kernel {module.name} has no SHAPES: give --shape or --shapes")
    return [module.check_shape(module.shapes[0])]


def _of_module(
    module: KernelModule, shapes: Sequence[Shape], dtype: str | None, store: _Stored
) -> Iterator[RooflineSubject]:
    name = module.check_dtype(dtype)
    space = required(f"space of kernel {module.name}", module.space)
    queue = TuningQueue(module, name, space, module.name)
    for shape, problem in zip(shapes, queue.check(shapes), strict=True):
        found = store.found(queue, problem)
        sized = store.sized(found, queue, shape)
        yield RooflineSubject(
            problem, shape, space, found, sized, partial(module.problem, shape, name)
        )


class _Stored:
    """What is stored for launches on a target, whatever its driver calls it."""

    def __init__(self, target: Target, settings: Settings) -> None:
        self._target = target
        self._runs = settings.runs_dir
        self._shelf = existing_store(settings)

    def found(self, queue: TuningQueue, problem: Problem) -> StoreLookup:
        """The answer for a launch, its winner as the space has it."""
        found = queue.launched(problem).found_on(self._target, self._shelf)
        if found.outcome != "hit" or found.record is None:
            return found
        record = found.record
        own = queue.space.matching(record.winner, **problem.shape) or record.winner
        return replace(found, record=replace(record, winner=own))

    def sized(self, found: StoreLookup, queue: TuningQueue, shape: Shape) -> bool:
        """As `is_sized`."""
        device = "" if found.record is None else found.record.key.device

        def key_of_shape(other: Shape) -> TuneKey:
            (problem,) = queue.check([other])
            return queue.launched(problem).identity(device)[0]

        return is_sized(found, queue.module, shape, key_of_shape, self._runs)
