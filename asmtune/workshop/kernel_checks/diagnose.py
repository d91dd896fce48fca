"""`diagnose`: from a wrong result to its cause, by experiments in a fixed order.

The order is mask, dtype of the accumulator, race, alignment, memory out of bounds: each experiment
can be judged once those before it are right. Where runs of one launch differ, neither mask nor
accumulator is blamed.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any, Final

import torch

from asmtune.base.errors import InputError, ProblemError
from asmtune.core.config import Config
from asmtune.core.hardware.model import Target
from asmtune.workshop.kernel_checks.evidence import KernelEvidence, evidence_of
from asmtune.workshop.kernel_checks.reports import CauseFinding, Diagnosis, Outcome, finding
from asmtune.workshop.kernel_checks.subjects import (
    BY_REFERENCE,
    DiagnosisRequest,
    DiagnosisSubject,
    LaunchSizes,
    Trial,
    TrialResult,
    TrialRunner,
)

_MOST_PROGRAMS: Final = {"cuda": 64, "cpu": 16}  # the interpreter runs them one by one
_MOST_ELEMENTS: Final = 1 << 24
_RUNS: Final = {"cuda": 10, "cpu": 2}
_GROWTH: Final = 4
_NARROW: Final = ("fp16", "bf16")
_CRASH: Final = re.compile("illegal memory|misaligned address|died with SIG")

Shape = Mapping[str, Any]


def diagnose(request: DiagnosisRequest, target: Target) -> Diagnosis:
    """Find why a kernel's result is wrong.

    Args:
        request: the kernel module, or the host function.
        target: the device whose compiled code is read; nothing is run on it.

    Raises:
        InputError: kernel, reference, shape or dtype is unknown, or they do not fit.
    """
    has_gpu = torch.cuda.is_available()
    device = request.device or ("cuda" if has_gpu else "cpu")
    if device == "cuda" and not has_gpu:
        raise InputError("device 'cuda': this machine has no CUDA device; take cpu")
    experiments = _Experiments(request, DiagnosisSubject(request), device, target)
    try:
        return experiments.diagnosis()
    finally:
        experiments.close()


class _Experiments:
    """Runs the trials in a child process, and judges them."""

    def __init__(
        self, request: DiagnosisRequest, subject: DiagnosisSubject, device: str, target: Target
    ) -> None:
        self._subject, self._device, self._target = subject, device, target
        self._dtype = subject.dtype
        problem = subject.problem(subject.shape, self._dtype)
        self._config = subject.space.first(**problem.shape)
        self._asked = request.shape
        self._sizes = LaunchSizes(subject, self._config, _MOST_PROGRAMS[device])
        self._even = self._sizes.small(self._sizes.two_blocks)
        self._notes: list[str] = []
        self._covered: tuple[str, ...] = ()  # sizes that are no larger than a block
        self._wrong = False
        self._known: dict[str, KernelEvidence] = {}
        self._unstable: list[str] = []
        self._found: list[CauseFinding] = []
        self._misplaced: tuple[str, str] | None = None  # what is seen of wrong offsets, the advice
        if (evidence := self._evidence(self._even)).note:
            self._notes.append(f"the compiled code was not read: {evidence.note}")
        outputs = request.outputs or subject.outputs or evidence.written
        if not outputs:
            why = "no argument is seen to be written: name OUTPUTS in a kernel module"
            raise ProblemError(f"{subject.name}: {evidence.note or why}")
        rows = {**evidence.tolerance_rows(device), **request.tolerances}
        self._has_reference = request.reference is not None or ":" not in request.kernel
        if not self._has_reference:
            self._notes.append(
                "results are compared with one another alone: --reference FILE.py:FUNCTION names "
                "what gives the right ones, as reference(arguments) of a kernel module"
            )
        if any(re.search(r"\bu?i(nt)?\d+\[", text) for text in request.values):
            self._notes.append("tensors of integers hold 0: name a function that makes its own")
        if rows != request.tolerances:
            self._notes.append(f"results may differ as by the tolerances {rows}, as products do")
        self._request = replace(request, outputs=outputs, device=device, tolerances=rows)
        self._runner = TrialRunner(self._request, subject.name)
        self._results: dict[str, TrialResult] = {}

    def close(self) -> None:
        self._runner.close()

    def diagnosis(self) -> Diagnosis:
        self._settle()
        title = f"{self._subject.name} {self._dtype} on {self._device}, config {self._config}"
        first = self._run(self._even)
        if first.error and not _CRASH.search(first.error):
            # What compiles, and is not interpreted, uses what the interpreter lacks.
            compiles = not self._evidence(self._even).note and "AssertionError" not in first.error
            if self._device == "cpu" and compiles:
                what = f"{first.error}: it compiles, but not all of Triton is interpreted"
                raise ProblemError(f"{self._subject.name}: {what}; diagnose it on a GPU")
            seen = f"a launch at {_text(self._even)} fails: {first.error}"
            return Diagnosis(title, True, (), tuple(dict.fromkeys(self._notes)), seen)
        asked = TrialResult(0.0) if self._asked is None else self._run(self._asked)
        if self._asked is not None and (asked.wrong or asked.refused):
            what = asked.refused or asked.error or f"the result is wrong: {asked.detail}"
            self._notes.append(f"at {_text(self._asked)} {what}")
        for experiment in self._mask, self._accumulator, self._race, self._alignment, self._bounds:
            self._found.append(experiment())
        wrong, notes = self._wrong or self._has_cause(), tuple(dict.fromkeys(self._notes))
        shape, result = (self._even, first) if first.wrong else (self._asked or {}, asked)
        seen = f"at {_text(shape)} the result is wrong: {result.detail}" if result.wrong else ""
        return Diagnosis(title, wrong, tuple(self._found), notes, seen)

    def _has_cause(self) -> bool:
        return any(one.outcome == "cause" for one in self._found)

    def _finding(
        self, cause: str, outcome: Outcome = "fine", *seen: str, advice: str = "", **names: str
    ) -> CauseFinding:
        backwards = "programs in reverse order" if self._device == "cpu" else "1 to 8 warps"
        tried = {"even": _text(self._even), "runs": f"{_RUNS[self._device]} runs, {backwards}"}
        tried["less"] = f" ({', '.join(self._covered)}: one less)" if self._covered else ""
        return finding(cause, outcome, seen, tried, advice or cause, **names)

    def _evidence(self, shape: Shape) -> KernelEvidence:
        key = repr(shape)
        if key not in self._known:
            problem = self._subject.problem(shape, self._dtype)
            self._known[key] = evidence_of(problem, self._config, self._target)
        return self._known[key]

    def _settle(self) -> None:
        """Choose small sizes that the kernel and its reference take.

        Sizes that are equal in the module's shape may have to stay equal.

        Raises:
            ProblemError: the kernel or its reference takes none of them.
        """
        if self._run(first := self._even).refused:
            self._even = self._sizes.small(self._sizes.two_blocks, tied=True)
            refused = self._run(self._even).refused
            asked = self._asked or first
            if refused.startswith(BY_REFERENCE) or (refused and self._run(asked).refused):
                raise ProblemError(f"{self._subject.name}: at {_text(self._even)}: {refused}")
            self._even = first if refused else self._even
        own = self._sizes.small({})
        if self._run(self._even).wrong and self._sizes.elements(own) <= _MOST_ELEMENTS:
            self._cover(own)

    def _cover(self, own: dict[str, Any]) -> None:
        """Take no sizes beyond a block, where one must cover those of the user's own shape."""
        first, given = self._run(self._even), self._run(own)
        if given.left or given.refused or given.error:
            return
        for covered in self._sizes.covered(own):
            even = self._sizes.small({**self._sizes.two_blocks, **covered})
            if self._run(even).excess <= 1:
                break
        else:
            even, covered = (own, own) if first.left else (self._even, {})
        self._even, self._covered = even, (*covered,)
        self._wrong = self._run(even).wrong or given.wrong or bool(given.touched)

    def _run(
        self, shape: Shape, dtype: str = "", config: Config | None = None, **how: Any
    ) -> TrialResult:
        """Run a trial, once, and note if its result is wrong."""
        values = (config or self._config).all_kwargs()
        trial = Trial(dict(shape), dtype or self._dtype, values, **how)
        if (key := repr(trial)) not in self._results:
            result = self._runner.result(trial)
            # The kernel is not meant for sizes for which its code does not compile.
            if result.error and not self._evidence(self._even).note and self._evidence(shape).note:
                result = TrialResult(refused=self._evidence(shape).note)
            elif result.error and (shape not in (self._even, self._asked) or how.get("shifted")):
                # An exception says that the kernel takes no such sizes or addresses.
                is_crash = _CRASH.search(result.error) or self._run(self._even).error
                result = result if is_crash else TrialResult(refused=result.error)
            self._results[key] = result
            if result.error:
                self._notes.append(f"a launch at {_text(shape)} failed: {result.error}")
            if not dtype and config is None and how.keys() <= {"guard"}:
                self._wrong |= result.wrong or bool(result.touched)
        return self._results[key]

    def _mask(self) -> CauseFinding:
        """Change one size at a time from one that blocks divide to one more."""
        even = self._run(self._even)
        if even.refused:
            self._notes.append(f"mask: {_text(self._even)} is refused: {even.refused}")
            return self._finding("mask", "untested", "the kernel takes no such sizes")
        risk: dict[str, tuple[str, ...]] = {}
        for name in self._sizes.names:
            step = -1 if name in self._covered else 1
            shape = {**self._even, name: self._even[name] + step}
            odd = self._run(shape)
            if odd.refused:
                self._notes.append(f"mask: {name}={shape[name]} is refused: {odd.refused}")
                continue
            seen, code = self._fault(shape), self._evidence(shape).beyond
            if seen and not self._fault(self._even) and not self._differs(self._even):
                seen = f"right at {name}={self._even[name]}; at {name}={shape[name]} {seen}"
                if self._is_misplaced(name, seen, odd):
                    return self._finding("mask", "fine", "offsets are wrong elsewhere: see bounds")
                return self._finding("mask", "cause", seen, *code, size=name)
            if code and not self._evidence(self._even).beyond:
                risk[name] = (f"at {name}={shape[name]}: {code[0]}", *code[1:])
        if not risk:
            return self._finding("mask")
        name, code = next(iter(risk.items()))
        return self._finding("mask", "risk", *code, size=name)

    def _is_misplaced(self, name: str, seen: str, odd: TrialResult) -> bool:
        """Return whether offsets are wrong, not the last block's mask, and keep what is seen."""
        twice = {**self._even, name: (1 + (name not in self._covered)) * self._even[name]}
        if odd.left and not odd.touched:
            self._misplaced = f"{seen}; {odd.left}", "unwritten"
        elif not self._run(twice).refused and (fault := self._fault(twice)):
            self._misplaced = f"right at {_text(self._even)}; at {_text(twice)} {fault}", "bounds"
        return self._misplaced is not None

    def _fault(self, shape: Shape) -> str:
        """Say what is wrong with a launch, with either value around its arguments; "" if nothing.

        A copy of NaN over NaN shows nothing: the other value shows it.
        """
        result, other = self._run(shape), self._run(shape, guard="three")
        parts = list(dict.fromkeys((*other.touched, *result.touched)))[:3]
        if result.error:
            return "; ".join((*parts, result.error))
        if other.drift > 1 and not other.error:
            parts.append("the result depends on memory around the arguments")
        if result.wrong:
            parts.append(f"the result is wrong: {result.detail}")
        return "; ".join(parts)

    def _accumulator(self) -> CauseFinding:
        """Compare errors with those of fp32 inputs, and at a size four times as large."""
        narrow = self._evidence(self._even).narrow_sums
        if not self._has_reference and not narrow:
            return self._finding("accumulator", "untested", "there is no reference")
        if self._dtype not in _NARROW and not narrow:
            seen = f"{self._dtype} inputs, and no sum in fp16 or bf16 in the code"
            return self._finding("accumulator", "fine", seen)
        # Where offsets are wrong, other sizes show that fault.
        varied = () if self._misplaced else self._sizes.names
        free = [name for name in varied if name not in self._covered]
        grown = ({**self._even, name: _GROWTH * self._even[name]} for name in free)
        for shape in (self._even, *grown):
            mine = self._run(shape)
            if not mine.wrong or mine.error or self._differs(shape):
                continue
            how = "not tried"
            if "fp32" in self._subject.dtypes:
                wide = self._run(shape, "fp32")
                if wide.wrong and not narrow:
                    continue  # another fault, which is no matter of digits
                how = f"{wide.excess:.3g} times" if wide.wrong else "right"
            elif not narrow:
                continue
            seen = f"at {_text(shape)} the error is {mine.excess:.3g} times the tolerance, with "
            seen += f"fp32 inputs: {how}; {mine.detail}"
            advice = "accumulator" if narrow or self._evidence(shape).note else "rounding"
            names = {"advice": advice, "dtype": self._dtype}
            return self._finding("accumulator", "cause", seen, *narrow, **names)
        return self._finding("accumulator", "risk" if narrow else "fine", *narrow)

    def _differs(self, shape: Shape) -> bool:
        """Return whether runs of one launch differ by more than is allowed, and keep how.

        The first run is compared: there each may be wrong in another way.
        """
        first = self._run(shape)
        trial = Trial(dict(shape), self._dtype, self._config.all_kwargs())
        order = ["programs in reverse order"] * (self._device == "cpu")
        for what in (*(f"run {run + 1}" for run in range(1, _RUNS[self._device])), *order):
            backwards = what in order
            result = self._run(shape, backwards=True) if backwards else self._runner.result(trial)
            # Backwards a program may wait for one that runs later.
            if result.refused or (result.error and (backwards or first.error)):
                continue
            if result.error or result.drift > 1:
                seen = result.error or result.detail or "the result is right"
                before = first.error or first.detail or "it was right"
                self._unstable.append(f"at {_text(shape)} {what}: {seen}; before: {before}")
                return True
        return False

    def _race(self) -> CauseFinding:
        """Repeat a launch, change the order of the programs, the warps and the config."""
        first, evidence = self._run(self._even), self._evidence(self._even)
        code = (*evidence.lost_updates, *evidence.indexed_updates)
        if first.left and not code:
            return self._finding("race", "untested", "elements are not written: see bounds")
        if self._unstable or self._differs(self._even):
            return self._finding("race", "cause", self._unstable[0], *code)
        # The error of another cause may differ by config.
        for config in () if self._has_cause() else self._other_configs():
            result = self._run(self._even, config=config)
            if not result.error and not result.refused and result.wrong != first.wrong:
                seen = f"config {config}: {result.detail or 'the result is right'}; before: "
                before = first.error or first.detail or "it was right"
                return self._finding("race", "cause", seen + before, *code)
        if not evidence.atomics and (evidence.lost_updates or (first.wrong and code)):
            return self._finding("race", "cause", *code)
        return self._finding("race", "risk" if code else "fine", *code)

    def _other_configs(self) -> Iterator[Config]:
        """Yield configs with other warps, and the space's with other blocks, a few."""
        if self._device == "cuda":
            for warps in {1, 2, 4, 8} - {self._config.num_warps}:
                yield Config(
                    self._config.kwargs, num_warps=warps, num_stages=self._config.num_stages
                )
        seen = [dict(self._config.kwargs)]
        # A module may derive sizes of its own, which constraints name.
        sizes = self._subject.problem(self._even, self._dtype).shape
        for config in self._subject.space.configs(**sizes):
            if config.kwargs not in seen and len(seen) < 3:
                seen.append(dict(config.kwargs))
                yield config

    def _alignment(self) -> CauseFinding:
        """Put the arguments one element behind an aligned address."""
        first, shifted = self._run(self._even), self._run(self._even, shifted=True)
        if shifted.refused:
            return self._finding("alignment", "untested", f"it is refused: {shifted.refused}")
        if first.error or not (shifted.error or shifted.drift > 1):
            return self._finding("alignment")
        seen = f"where aligned: {first.detail or 'right'}; else: {shifted.error or shifted.detail}"
        return self._finding("alignment", "cause", seen)

    def _bounds(self) -> CauseFinding:
        """Look at the memory around the arguments where blocks divide all sizes."""
        result, other = self._run(self._even), self._run(self._even, guard="three")
        code = self._evidence(self._even).beyond
        reads = other.drift > 1 and not self._unstable and not other.error
        if result.touched or other.touched or reads or _CRASH.search(result.error):
            return self._finding("bounds", "cause", self._fault(self._even), *code)
        seen, advice = self._misplaced or (result.left, "unwritten")
        if seen and not self._has_cause():
            return self._finding("bounds", "cause", seen, *code, advice=advice)
        return self._finding("bounds", "risk" if code else "fine", *code)


def _text(shape: Shape) -> str:
    return ", ".join(f"{name}={value}" for name, value in shape.items())
