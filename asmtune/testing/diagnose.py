"""`diagnose`: from a wrong result to its cause, by experiments in a fixed order.

The order is mask, dtype of the accumulator, race, alignment, memory out of bounds: each experiment
can be judged once those before it are right.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import asdict, replace
from functools import cached_property
from typing import Any, Final

from asmtune.base.child import Child, ChildGoneError, module_command
from asmtune.base.errors import ProblemError
from asmtune.core.config import Config
from asmtune.core.hardware.model import Target
from asmtune.testing.evidence import KernelEvidence, evidence_of
from asmtune.testing.launches import Trial, TrialResult, TrialSubject
from asmtune.testing.reports import CauseFinding, Diagnosis
from asmtune.testing.subjects import DiagnosisRequest, DiagnosisSubject, load_subject

_TRIAL_S: Final = 300.0
_LEAST_SIZE: Final = 16
_MOST_PROGRAMS: Final = 64
_LARGEST_BLOCK: Final = 8192
_RUNS: Final = {"cuda": 10, "cpu": 2}
_GROWTH: Final = 4
_NARROW: Final = ("fp16", "bf16")


def diagnose(request: DiagnosisRequest, target: Target) -> Diagnosis:
    """Find why a kernel's result is wrong.

    Args:
        request: the kernel with its reference.
        target: the device whose compiled code is read; nothing is run on it.

    Raises:
        InputError: kernel, reference, shape or dtype is unknown, or they do not fit.
    """
    device = request.device
    if device is None:
        import torch

        device = "cuda" if torch.cuda.is_available() else "cpu"
    subject = load_subject(request)
    with _Experiments(request, subject, device, target) as experiments:
        return experiments.diagnosis()


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
        self._notes: list[str] = []
        self._wrong = False
        evidence = self._evidence(self._even)
        if evidence.note:
            self._notes.append(f"the compiled code was not read: {evidence.note}")
        outputs = subject.outputs or evidence.written
        if not outputs:
            raise ProblemError(f"{subject.name}: no argument is seen to be written; name OUTPUTS")
        rows = {"bf16": "bf16 cut"} if device == "cpu" else {}
        if device == "cuda" and evidence.uses_tf32:
            rows["fp32"] = "tf32"
        rows |= request.tolerances
        self._process = TrialSubject(request.kernel, request.reference, outputs, device, rows)
        self._child: Child | None = None
        self._results: dict[str, TrialResult] = {}

    def __enter__(self) -> _Experiments:
        return self

    def __exit__(self, *_: object) -> None:
        if self._child is not None:
            self._child.kill()

    def diagnosis(self) -> Diagnosis:
        findings = tuple(self._findings())
        title = f"{self._subject.name} {self._dtype} on {self._device}, config {self._config}"
        wrong = self._wrong or any(one.outcome == "cause" for one in findings)
        return Diagnosis(title, wrong, findings, tuple(dict.fromkeys(self._notes)))

    def _findings(self) -> Iterator[CauseFinding]:
        if self._asked is not None:
            self._run(self._asked)
        order = (self._mask, self._accumulator, self._race, self._alignment, self._bounds)
        yield from (experiment() for experiment in order)

    def _evidence(self, shape: Mapping[str, Any]) -> KernelEvidence:
        problem = self._subject.problem(shape, self._dtype)
        return evidence_of(problem, self._config, self._target)

    @cached_property
    def _sizes(self) -> tuple[str, ...]:
        """Name the sizes of the shape that may be changed."""
        shape = self._subject.shape
        return tuple(n for n, v in shape.items() if type(v) is int and v >= _LEAST_SIZE)

    @cached_property
    def _even(self) -> dict[str, Any]:
        """Return small sizes that the config's blocks divide, of some programs."""
        blocks = [
            value
            for value in self._config.kwargs.values()
            if type(value) is int and 0 < value <= _LARGEST_BLOCK and not value & (value - 1)
        ]
        whole = 2 * max([*blocks, _LEAST_SIZE])
        shape = {**self._subject.shape, **dict.fromkeys(self._sizes, whole)}
        while (count := self._programs(shape)) > _MOST_PROGRAMS:
            halves = [{**shape, n: shape[n] // 2} for n in self._sizes if shape[n] > _LEAST_SIZE]
            fewest = min(halves, key=self._programs, default=shape)
            if self._programs(fewest) >= count:
                break
            shape = fewest
        return shape

    def _programs(self, shape: Mapping[str, Any]) -> int:
        x, y, z = self._subject.problem(shape, self._dtype).programs(self._config)
        return x * y * z

    def _run(
        self, shape: Mapping[str, Any], dtype: str = "", config: Config | None = None, **how: Any
    ) -> TrialResult:
        """Run a trial, once, and note if its result is wrong."""
        trial = self._subject.trial(shape, dtype or self._dtype, config or self._config)
        trial = replace(trial, **how)
        key = repr(trial)
        if key not in self._results:
            self._results[key] = self._result(trial)
            if error := self._results[key].error:
                self._notes.append(f"a launch at {_text(shape)} failed: {error}")
            is_plain = (dtype or self._dtype) == self._dtype
            result = self._results[key]
            self._wrong |= is_plain and (result.wrong or bool(result.touched))
        return self._results[key]

    def _result(self, trial: Trial) -> TrialResult:
        if self._child is None:
            self._child = self._started()
        try:
            self._child.send(asdict(trial))
            answer = self._child.receive(_TRIAL_S)
        except (ChildGoneError, TimeoutError) as error:
            ended = self._child.kill(patience_s=5.0 if isinstance(error, ChildGoneError) else 0.0)
            self._child = None
            return TrialResult(error=f"the process {ended}")
        result = TrialResult(**{**answer, "touched": tuple(answer["touched"])})
        if self._device == "cuda" and result.error:  # the context may be lost
            self._child.kill()
            self._child = None
        return result

    def _started(self) -> Child:
        interpret = {"TRITON_INTERPRET": "1" if self._device == "cpu" else "0"}
        child = Child(module_command("asmtune.testing.launches"), {**os.environ, **interpret})
        try:
            child.send(asdict(self._process))
            refusal = child.receive(_TRIAL_S).get("refusal")
        except (ChildGoneError, TimeoutError) as error:
            raise ProblemError(f"{self._subject.name}: the process {child.kill(5.0)}") from error
        if refusal:
            child.kill()
            raise ProblemError(refusal)
        return child

    def _mask(self) -> CauseFinding:
        """Change one size at a time from one that blocks divide to one more."""
        even = self._run(self._even)
        tried = (
            f"sizes that blocks divide ({_text(self._even)}), and each one more; memory around the "
            "arguments marked with NaN, then with 3"
        )
        if even.refused:
            self._notes.append(f"mask: {_text(self._even)} is refused: {even.refused}")
            return CauseFinding("mask", "untested", tried, "the kernel takes no such sizes")
        for name in self._sizes:
            shape = {**self._even, name: self._even[name] + 1}
            odd = self._run(shape)
            if odd.refused:
                self._notes.append(f"mask: {name}={shape[name]} is refused: {odd.refused}")
                continue
            seen = _fault(odd, self._run(shape, guard="three"))
            if seen and not _fault(even, self._run(self._even, guard="three")):
                evidence = self._evidence(shape)
                code = "; ".join(evidence.beyond)
                if evidence.unmasked:
                    names = ", ".join(evidence.unmasked)
                    code = "; ".join(filter(None, (code, f"accessed without a mask: {names}")))
                advice = (
                    f"mask loads and stores along {name}: mask=offsets < {name}, with an other= "
                    "that changes no sum, maximum or minimum"
                )
                seen = f"right at {name}={self._even[name]}; at {name}={shape[name]} {seen}"
                return CauseFinding(
                    "mask", "cause", tried, "; ".join(filter(None, (seen, code))), advice
                )
        return CauseFinding("mask", "fine", tried, "no size differs from the others")

    def _accumulator(self) -> CauseFinding:
        """Compare errors with those of fp32 inputs, and at a size four times as large."""
        tried = "inputs in fp32, and each size four times as large"
        narrow = self._evidence(self._even).narrow_sums
        if self._dtype not in _NARROW and not narrow:
            seen = f"{self._dtype} inputs, and no sum in fp16 or bf16 in the code"
            return CauseFinding("accumulator", "fine", tried, seen)
        code = "; ".join(narrow)
        for shape in self._grown_shapes():
            mine = self._run(shape)
            if not mine.wrong or mine.error or mine.refused:
                continue
            how = "not tried"
            if "fp32" in self._subject.dtypes:
                wide = self._run(shape, "fp32")
                if wide.wrong and not narrow:
                    continue  # another fault, which is no matter of digits
                how = f"{wide.excess:.3g} times" if wide.wrong else "right"
            elif not narrow:
                continue
            seen = (
                f"at {_text(shape)} the error is {mine.excess:.3g} times the tolerance, with "
                f"fp32 inputs: {how}; {mine.detail}"
            )
            advice = (
                "add up in fp32: tl.zeros(..., tl.float32), .to(tl.float32) before tl.sum, "
                "out_dtype=tl.float32 in tl.dot; round once, at the store"
            )
            found = "; ".join(filter(None, (seen, code)))
            return CauseFinding("accumulator", "cause", tried, found, advice)
        if narrow:
            advice = "add up in fp32, unless rounding each step is meant"
            return CauseFinding("accumulator", "risk", tried, code, advice)
        return CauseFinding("accumulator", "fine", tried, "errors are those of fp32 sums")

    def _grown_shapes(self) -> Iterator[dict[str, Any]]:
        yield self._even
        for name in self._sizes:
            yield {**self._even, name: _GROWTH * self._even[name]}

    def _race(self) -> CauseFinding:
        """Repeat a launch, change the order of the programs, the warps and the config."""
        first, evidence = self._run(self._even), self._evidence(self._even)
        runs = _RUNS[self._device]
        tried = f"{runs} runs, " + (
            "programs in reverse order, other configs"
            if self._device == "cpu"
            else "1 to 8 warps, other configs"
        )
        again = self._subject.trial(self._even, self._dtype, self._config)
        changes = {f"run {run + 1}": self._result(again) for run in range(1, runs)}
        if self._device == "cpu":
            changes["programs in reverse order"] = self._run(self._even, backwards=True)
        for config in self._other_configs():
            changes[f"config {config}"] = self._run(self._even, config=config)
        advice = (
            "let one program write each element; or use tl.atomic_add; or write partial results "
            "and add them in a second kernel"
        )
        for what, result in changes.items():
            if result.refused or result.digest == first.digest or result.wrong == first.wrong:
                continue
            seen = f"{what}: {result.error or result.detail or 'the result is right'}; before: "
            seen += first.error or first.detail or "it was right"
            code = "; ".join((*evidence.lost_updates, *evidence.same_stores))
            found = "; ".join(filter(None, (seen, code)))
            return CauseFinding("race", "cause", tried, found, advice)
        if evidence.lost_updates and not evidence.has_atomics:
            seen = "; ".join(evidence.lost_updates)
            return CauseFinding("race", "cause", tried, seen, advice)
        if code := "; ".join((*evidence.lost_updates, *evidence.same_stores)):
            return CauseFinding("race", "risk", tried, code, advice)
        return CauseFinding("race", "fine", tried, "all agree")

    def _other_configs(self) -> Iterator[Config]:
        """Yield configs with other warps, and the space's with other blocks, a few."""
        if self._device == "cuda":
            for warps in {1, 2, 4, 8} - {self._config.num_warps}:
                yield Config(
                    self._config.kwargs, num_warps=warps, num_stages=self._config.num_stages
                )
        seen = [dict(self._config.kwargs)]
        for config in self._subject.space.configs(**self._even):
            if config.kwargs not in seen and len(seen) < 3:
                seen.append(dict(config.kwargs))
                yield config

    def _alignment(self) -> CauseFinding:
        """Put the arguments one element behind an aligned address."""
        tried = "all arguments one element behind an aligned address"
        first, shifted = self._run(self._even), self._run(self._even, shifted=True)
        advice = (
            "take out what vouches for the address: tl.multiple_of on pointers, casts to wider "
            "types; Triton specialises on aligned pointers by itself"
        )
        lines = ", ".join(map(str, self._evidence(self._even).hints))
        if shifted.wrong and not first.wrong:
            seen = f"right where aligned; else {shifted.error or shifted.detail}"
            if lines:
                seen += f"; tl.multiple_of in line {lines}"
            return CauseFinding("alignment", "cause", tried, seen, advice)
        return CauseFinding("alignment", "fine", tried, "the result is as it was")

    def _bounds(self) -> CauseFinding:
        """Look at the memory around the arguments where blocks divide all sizes."""
        tried = f"marked memory around the arguments at {_text(self._even)}"
        result, evidence = self._run(self._even), self._evidence(self._even)
        other = self._run(self._even, guard="three")
        advice = "check the grid, strides and the order of sizes: offsets leave the tensor"
        code = "; ".join(evidence.beyond)
        is_outside = bool(result.touched or other.touched) or (
            result.digest != other.digest and not other.error
        )
        is_crash = re.search(r"illegal memory|died with SIG", result.error) is not None
        if is_outside or is_crash:
            seen = "; ".join(filter(None, (_fault(result, other), code)))
            return CauseFinding("bounds", "cause", tried, seen, advice)
        if code:
            return CauseFinding("bounds", "risk", tried, code, advice)
        return CauseFinding(
            "bounds", "fine", tried, "nothing around the arguments has a part in it"
        )


def _fault(result: TrialResult, other: TrialResult) -> str:
    """Say what is wrong with a trial, and with the same with other memory around; "" if nothing."""
    # A copy of NaN over NaN shows nothing: the other value shows it.
    parts = list(dict.fromkeys((*other.touched, *result.touched)))[:3]
    if result.error:
        parts.append(result.error)
    if not result.error and not other.error and result.digest != other.digest:
        parts.append("the result depends on memory around the arguments")
    if result.wrong and not result.error:
        parts.append(f"the result is wrong: {result.detail}")
    return "; ".join(parts)


def _text(shape: Mapping[str, Any]) -> str:
    return ", ".join(f"{name}={value}" for name, value in shape.items())
