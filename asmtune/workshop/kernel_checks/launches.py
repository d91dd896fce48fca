"""Experiments with one launch, in a process of their own: guarded memory, shifts, orders.

The process may use Triton's interpreter while its parent reads compiled code, and a kernel that
writes where it must not can end this process alone. Messages are lines of JSON: a subject, and then
its trials, each of which is answered by its result.
"""

from __future__ import annotations

import contextlib
import json
import math
import sys
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any, Final

import torch

from asmtune.base.child import die_with_parent, own_stdout
from asmtune.base.errors import AsmtuneError, ProblemError
from asmtune.core.assumed_import import importing_for
from asmtune.core.config import Config
from asmtune.core.failures import guarded
from asmtune.core.hardware.shipped import load_target
from asmtune.core.kernel_module import load_named
from asmtune.core.records.artifacts import Failure
from asmtune.measure.checks.compare import bits
from asmtune.measure.checks.effects import tensor_parts
from asmtune.measure.checks.roles import overlap
from asmtune.measure.checks.tensors import (
    MemoryRegion,
    TensorArgument,
    regions_of,
    tensor_arguments,
)
from asmtune.runtime.offline.host_functions import assumed_gpu
from asmtune.triton_api.autotuners import without_autotuner
from asmtune.triton_api.interpreter import backwards, exact_floats
from asmtune.workshop.kernel_checks.inputs import converted
from asmtune.workshop.kernel_checks.reports import as_tuple, compared
from asmtune.workshop.kernel_checks.subjects import (
    BY_REFERENCE,
    DiagnosisRequest,
    Trial,
    TrialResult,
)
from asmtune.workshop.kernel_checks.tolerances import excess

GUARDS: Final = {"nan": math.nan, "three": 3.0}
"""Values of the memory around the first of the arguments, and each other has one of its own.

What differs between them was read from there.
"""

_LEAST_GUARD: Final = 1 << 15  # bytes
_MOST_GUARD: Final = 1 << 22
_ALIGNED: Final = 256
_MARKS: Final = 8  # whole numbers that FP8 has


class _RefusedError(Exception):
    """The reference raised."""


class TrialProcess:
    """Runs the trials of the subject that was named last."""

    def answer(self, message: Mapping[str, Any]) -> dict[str, Any]:
        """Take a subject or run a trial; return the result, or why it failed."""
        try:
            if "kernel" in message:
                self._load(DiagnosisRequest(**message))
                return {}
            return asdict(self.run(Trial(**message)))
        except AsmtuneError as error:
            return {"refusal": str(error)}

    def _load(self, subject: DiagnosisRequest) -> None:
        self._subject = subject
        self._module = subject.module()
        self._reference: Any = getattr(self._module.python, "reference", None)
        if subject.reference is not None:
            with importing_for(assumed_gpu(load_target(subject.target))):
                self._reference = load_named(subject.reference)
        if self._reference is None and ":" not in subject.kernel:
            raise ProblemError(
                f"{subject.kernel} has no reference(arguments), which gives its outputs in "
                "float64: define one"
            )
        self._first: dict[str, list[torch.Tensor]] = {}

    def run(self, trial: Trial) -> TrialResult:
        """Launch once, and compare.

        Raises:
            AsmtuneError: the reference does not fit the kernel, or a dtype has no tolerance.
        """
        torch.manual_seed(0)
        # Elements that no program writes are then NaN, or the largest integer, in each trial.
        torch.use_deterministic_algorithms(True, warn_only=True)
        try:
            made = guarded("problem", lambda: self._launch_of(trial))
        except AsmtuneError as error:
            return TrialResult(refused=str(error))
        finally:
            torch.use_deterministic_algorithms(False)
        if isinstance(made, Failure):
            return TrialResult(refused=made.detail.splitlines()[0])
        try:
            exact = self._exact(made[1])
        except _RefusedError as error:
            return TrialResult(refused=str(error))
        result = guarded("launch", lambda: self._judged(trial, *made, exact))
        if isinstance(result, Failure):
            return TrialResult(error=result.detail.splitlines()[0])
        return result

    def _launch_of(self, trial: Trial) -> tuple[Any, dict[str, Any], Any]:
        """Return kernel, arguments and grid."""
        problem = self._module.problem(trial.shape, trial.dtype, str(self._subject.device))
        values, config = dict(problem.arguments), Config.from_dict(trial.config)
        own = self._module.space().matching(config, **problem.shape)
        if own is not None and own.pre_hook is not None:
            own.pre_hook({**values, **trial.config})
        return problem.kernel, values, problem.grid

    def _exact(self, values: dict[str, Any]) -> tuple[torch.Tensor, ...]:
        """Return the exact outputs, from copies: a launch in place changes the arguments."""
        if self._reference is None:
            return ()  # each result counts as right, and the trials are compared
        outputs, names = self._subject.outputs, tensor_parts(values)
        if unknown := [name for name in outputs if name not in names]:
            raise ProblemError(
                f"OUTPUTS: {unknown[0]!r} is no tensor of {self._subject.kernel}, which has "
                f"{', '.join(names)}"
            )
        with torch.no_grad():
            given = converted(values, torch.clone)
            exact = guarded("reference", lambda: as_tuple(self._reference(given)))
        if isinstance(exact, Failure):
            raise _RefusedError(f"{BY_REFERENCE}{exact.detail.splitlines()[0]}")
        if len(exact) != len(outputs):
            raise ProblemError(
                f"the reference gives {len(exact)} results, and the outputs are "
                f"{len(outputs)}: {', '.join(outputs)}; let both name the same"
            )
        return exact

    def _judged(
        self, trial: Trial, kernel: Any, values: dict[str, Any], grid: Any, exact: Any
    ) -> TrialResult:
        # A tensor descriptor needs an aligned address.
        shifted = trial.shifted and all(map(torch.is_tensor, tensor_parts(values).values()))
        memories = [
            GuardedMemory(region, GUARDS[trial.guard], place, shifted=shifted)
            for place, region in enumerate(_separate_regions(values))
        ]

        def moved(value: torch.Tensor) -> torch.Tensor:
            return next((m.at(value) for m in memories if m.holds(value)), value)

        values = converted(values, moved)
        parts, rows = tensor_parts(values), self._subject.tolerances
        outputs = [getattr(parts[name], "base", parts[name]) for name in self._subject.outputs]
        before = [_marked(one).clone() for one in outputs]
        order = backwards() if trial.backwards else contextlib.nullcontext()
        with torch.no_grad(), exact_floats(), order:
            without_autotuner(kernel)[grid](**values, **trial.config)
        if self._subject.device == "cuda":
            torch.cuda.synchronize()
        exact = exact or [one.clone() for one in outputs]
        found = compared("trial", "", outputs, exact, rows)
        key = repr((trial.shape, trial.dtype))
        first = self._first.setdefault(key, [one.clone() for one in outputs])
        drift = max(excess(one, other, rows) for one, other in zip(outputs, first, strict=True))
        touched = tuple(text for memory in memories for text in memory.touched())
        names = self._subject.outputs if found.detail else ()
        left = next(filter(None, map(_left, names, outputs, before, exact)), "")
        return TrialResult(found.excess, found.detail, drift, touched, left)


def _marked(output: torch.Tensor) -> torch.Tensor:
    """Set an output that is all NaN, as unset memory is, to a NaN that no arithmetic gives."""
    if output.is_floating_point() and output.itemsize > 1 and bool(output.isnan().all()):
        bits(output).fill_(-1)
    return output


def _left(name: str, got: torch.Tensor, before: torch.Tensor, exact: torch.Tensor) -> str:
    """Say which wrong elements of an output are as before the launch; "" if none is.

    Zeros may be computed, and so may flags and the one NaN of FP8.
    """
    if got.shape != exact.shape or got.dtype == torch.bool:
        return ""
    same = (bits(got) == bits(before)) & (before.float() != 0)
    if got.itemsize == 1 and got.is_floating_point():
        same &= ~got.float().isnan()
    wrong = (same & (got.double() != exact.to(got.dtype).double())).reshape(-1).nonzero()
    if not len(wrong):
        return ""
    first = [int(place) for place in torch.unravel_index(wrong[0, 0], got.shape)]
    return (
        f"{len(wrong)} of {got.numel()} elements of {name} are as they were before the launch, the "
        f"first at {first}"
    )


def _separate_regions(values: Mapping[str, Any]) -> list[MemoryRegion]:
    """Return a region for each tensor, and one for those that share elements."""
    groups: list[list[TensorArgument]] = []
    for tensor in tensor_arguments(values)[0]:
        shared = [group for group in groups if any(overlap(tensor, one) for one in group)]
        groups = [group for group in groups if group not in shared]
        groups.append([tensor, *(one for group in shared for one in group)])
    return [region for group in groups for region in regions_of(group)]


class GuardedMemory:
    """A copy of memory, with marked memory before it, behind it, and between its elements.

    Args:
        region: the memory that some arguments share.
        fill: value of the marked memory; of whole numbers 0 for NaN, and else 1.
        place: among the memories of a launch, whose values differ: a copy of one shows in another.
        shifted: puts the copy one element behind an aligned address.
    """

    def __init__(
        self, region: MemoryRegion, fill: float, place: int = 0, *, shifted: bool = False
    ) -> None:
        self._region, dtype = region, region.tensors[0].dtype
        self._width = max(tensor.own_dtype.itemsize for tensor in region.tensors)
        length = region.stop - region.start
        guard = min(max(_LEAST_GUARD, length), _MOST_GUARD) // _ALIGNED * _ALIGNED
        self._start = guard + region.start % _ALIGNED + shifted * self._width
        self._stop = self._start + length
        size = (self._stop + guard) // _ALIGNED * _ALIGNED
        if not dtype.is_floating_point:
            fill = float(math.isnan(fill) == place % 2)
        else:
            fill += place % _MARKS
        marks = torch.full((size // dtype.itemsize,), fill, device=region.device)
        self._whole = marks.to(dtype).view(torch.uint8)
        free = torch.ones_like(self._whole)
        for tensor in region.tensors:
            place = self._start + tensor.start - region.start
            copy, known = (
                bits(tensor.over(memory.untyped_storage(), place, region.device))
                for memory in (self._whole, free)
            )
            copy.copy_(bits(tensor.view()))
            known.zero_()
        self._free, self._before = free.bool(), self._whole.clone()

    def holds(self, value: torch.Tensor) -> bool:
        """Return whether a tensor was copied."""
        starts = (tensor.start - self._region.start for tensor in self._region.tensors)
        return bool(value.numel()) and self._offset(value) in starts

    def _offset(self, value: torch.Tensor) -> int:
        return int(value.data_ptr() - self._region.storage.data_ptr() - self._region.start)

    def at(self, value: torch.Tensor) -> torch.Tensor:
        """Return the copy of a tensor, of the same shape and strides."""
        place = (self._start + self._offset(value)) // value.itemsize
        empty = torch.empty(0, dtype=value.dtype, device=value.device)
        return empty.set_(self._whole.untyped_storage(), place, value.shape, value.stride())

    def touched(self) -> list[str]:
        """Say how many elements before, behind and between the tensors have changed."""
        changed = ((self._whole != self._before) & self._free).nonzero().view(-1)
        elements = ((changed - self._start) // self._width).unique()
        count = (self._stop - self._start) // self._width
        before, behind = elements[elements < 0], elements[elements >= count]
        name = ", ".join(tensor.name for tensor in self._region.tensors)
        found = []
        if len(before):
            found.append(
                f"{len(before)} elements before the start of {name} were written, "
                f"the nearest {-int(before.max())} before it"
            )
        if len(behind):
            found.append(
                f"{len(behind)} elements behind the end of {name} were written, "
                f"the nearest at index {int(behind.min())} of {count}"
            )
        if gaps := len(elements) - len(before) - len(behind):
            found.append(f"{gaps} elements between those of {name} were written: see its strides")
        return found


def main() -> None:
    """Answer subjects and trials, a line of JSON each, until there are no more."""
    die_with_parent()
    answers = own_stdout()
    process = TrialProcess()
    for line in sys.stdin:
        answer = process.answer(json.loads(line))
        answers.write(json.dumps(answer) + "\n")
        answers.flush()


if __name__ == "__main__":
    main()
