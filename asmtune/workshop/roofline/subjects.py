"""Launches for a roofline: kernels, their shapes, and the stored config of each."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

from asmtune.base.errors import InputError
from asmtune.base.fingerprint import canonical
from asmtune.base.settings import Settings
from asmtune.core.failures import required
from asmtune.core.hardware.model import Target
from asmtune.core.hardware.shipped import match_device
from asmtune.core.inputs.shapes import ShapeSource, place_shapes
from asmtune.core.kernel_module import KernelModule, Shape
from asmtune.core.problem import Problem
from asmtune.core.records.tuned import TuneKey
from asmtune.runtime.offline.kernel_sources import (
    KernelSource,
    LoadedKernel,
    StoredLaunch,
    kernel_module,
)
from asmtune.runtime.offline.tuning_queue import TuningQueue
from asmtune.store.interchange import find_tuned, shipped_of
from asmtune.store.lookup import StoreLookup
from asmtune.store.safe_store import SafeStore, existing_store
from asmtune.workshop.roofline.survey import RooflineSubject

KeyOf = Callable[[Shape], TuneKey]
"""The key of a launch of a module at a shape."""


_MISSING: Final = object()


def is_sized(lookup: StoreLookup, module: KernelModule, shape: Shape, key_of: KeyOf) -> bool:
    """Say if a stored record was surely timed at a shape, which has all dimensions.

    A key of a bucket does not say at which of its sizes. `key_of` makes the key of a launch on the
    record's device.
    """
    if lookup.outcome != "hit" or lookup.record is None:
        return False
    key = lookup.record.key
    if all(key.shape.get(name, _MISSING) == value for name, value in shape.items()):
        return True
    if lookup.layer == "shipped":
        every = [module.check_shape(other) for other in module.shapes]
        alike = [other for other in every if key_of(other).shape == key.shape]
        return alike == [shape]
    return False


@dataclass(frozen=True)
class RooflineRequest:
    """Kernels, shapes and dtype to look at; by default each kernel's first shape and dtype.

    A kernel that is loaded already, such as a plain function, has its own; nothing is stored of it.
    """

    kernels: Sequence[KernelSource | LoadedKernel]
    shapes: Sequence[ShapeSource] = ()
    dtype: str | None = None

    def subjects(self, target: Target, settings: Settings) -> list[RooflineSubject]:
        """Make a launch for each kernel and each shape that has its dimensions.

        Raises:
            InputError: a kernel is unknown, or refuses a shape; a shape fits no kernel; or a kernel
                has none.
        """
        loaded = [kernel for kernel in self.kernels if isinstance(kernel, LoadedKernel)]
        modules = [kernel_module(one) for one in self.kernels if not isinstance(one, LoadedKernel)]
        store = _Stored(target, settings)
        subjects = [
            subject
            for module, shapes in zip(modules, _shared(modules, self.shapes), strict=True)
            for subject in _of_module(module, shapes, self.dtype, store)
        ]
        return subjects + [_of_loaded(kernel) for kernel in loaded]


def _shared(modules: Sequence[KernelModule], sources: Sequence[ShapeSource]) -> list[list[Shape]]:
    """Return the shapes of each module: those that have its dimensions, or its first."""
    if not (placed := place_shapes(sources)):
        return [_first(module) for module in modules]
    fitting: list[dict[str, Shape]] = [{} for _ in modules]
    for where, shape in placed:
        refusals = []
        for module, own in zip(modules, fitting, strict=True):
            try:
                checked = module.check_shape(shape)
            except InputError as error:
                refusals.append(f"{where}: {error}")
            else:
                own[canonical(checked)] = checked
        if len(refusals) == len(modules):
            raise InputError("; ".join(refusals[:1]))
    bare = next((m.name for m, own in zip(modules, fitting, strict=True) if not own), None)
    if bare is not None:
        raise InputError(f"no shape fits kernel {bare}: give one more --shape, or leave it out")
    return [list(own.values()) for own in fitting]


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
        lookup = store.look_up(queue, problem)
        sized = store.is_sized(lookup, queue, shape)
        yield RooflineSubject(problem, shape, space, lookup, sized)


def _of_loaded(kernel: LoadedKernel) -> RooflineSubject:
    problem, miss = kernel.problem, StoreLookup("miss")
    return RooflineSubject(problem, problem.shape, kernel.space, miss, False, kernel.notes)


def found_on(launch: StoredLaunch, target: Target, store: SafeStore | None) -> StoreLookup:
    """Return the first hit for a target's device, else the first answer that says why not.

    A target is the model of a device; records are kept by the name that the driver gives it.
    """
    name = launch.problem.full_name
    stored = store.devices(name) if store is not None else []
    devices = dict.fromkeys([*stored, *(record.key.device for record in shipped_of(name))])
    best = StoreLookup("miss")
    for device in devices:
        model = match_device(device)
        if model is None or model.name != target.name:
            continue
        answer = find_tuned(*launch.identity(device), store)
        if answer.outcome == "hit":
            return answer
        best = answer if best.outcome == "miss" else best
    return best


class _Stored:
    """Looks up stored configs of launches on a target, by any name its driver gives it."""

    def __init__(self, target: Target, settings: Settings) -> None:
        self._target = target
        self._store = existing_store(settings)

    def look_up(self, queue: TuningQueue, problem: Problem) -> StoreLookup:
        """Look a launch up; the winner is the space's own config, with its hooks."""
        lookup = found_on(queue.launched(problem), self._target, self._store)
        if lookup.outcome != "hit" or lookup.record is None:
            return lookup
        record = lookup.record
        own = queue.space.matching(record.winner, **problem.shape)
        if own is None:
            return replace(lookup, outcome="stale", detail="its config is not in the space")
        return replace(lookup, record=replace(record, winner=own))

    def is_sized(self, lookup: StoreLookup, queue: TuningQueue, shape: Shape) -> bool:
        device = "" if lookup.record is None else lookup.record.key.device

        def key_of_shape(other: Shape) -> TuneKey:
            (problem,) = queue.check([other])
            return queue.launched(problem).identity(device)[0]

        return is_sized(lookup, queue.module, shape, key_of_shape)
