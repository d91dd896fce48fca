"""`check_kernel`: compares a kernel with a float64 reference on inputs that find faults.

It runs on a GPU, on the CPU under Triton's interpreter, and on plain PyTorch functions.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

import torch

from asmtune.base.errors import InputError
from asmtune.base.text import did_you_mean
from asmtune.core.dtypes import dtype_of
from asmtune.core.failures import guarded
from asmtune.core.records.artifacts import Failure
from asmtune.measure.checks.effects import tensor_parts
from asmtune.triton_api.interpreter import exact_floats
from asmtune.workshop.kernel_checks.inputs import (
    FLAT,
    LAYOUTS,
    SHOW_MASKS,
    Inputs,
    converted,
    copied,
    special_values,
    widened,
)
from asmtune.workshop.kernel_checks.reports import (
    ResultComparison,
    TestReport,
    as_tuple,
    called,
    compared,
)
from asmtune.workshop.kernel_checks.tolerances import Rows, Tolerance, excess, rows_of

KINDS: Final = ("shapes", "dtypes", "values", "layouts", "aliasing", "repeats", "gradients")
"""Names of the checks, in the order in which they run."""

_REFUSALS: Final = ("ValueError", "TypeError", "NotImplementedError")
_RUNS: Final = 3
_NO_CASE: Final = (
    'check_kernel: cases are no arguments by name: give a list such as [{"x": x}], or mappings or '
    "functions by name"
)

Function = Callable[..., Any]


@dataclass(frozen=True, kw_only=True)
class KernelChecks:
    """Options of a check.

    Attributes:
        varied: inputs that get special values and other layouts; None for all tensors of floats.
        gradients: inputs whose gradients are compared with autograd of the reference. No
            gradient comes from right results that rounding has moved across 0: ReLU has two there.
        writes: inputs that the function may write to; all others must stay as they are.
        out: the keyword that takes the output's tensor, if an input may be given as output.
        most: bound of huge values; squares of larger ones leave the range.
        tolerances: a row of the table of tolerances, or a tolerance, by the result's dtype; or
            one tolerance for all floats.
        layouts: changes of an input that keep its shape, by name.
        checks: which of `KINDS` to run.
        deterministic: whether runs must agree in every bit. If not, runs within the tolerance may
            differ, as with atomic additions of floats; a note says so.
        thorough: whether each config meets each case, each layout and special values. If not,
            configs take turns; for dtypes after the first, and under the interpreter.
    """

    varied: Sequence[str] | None = None
    gradients: Sequence[str] = ()
    writes: Collection[str] = ()
    out: str = ""
    most: float = float("inf")
    tolerances: Rows | Tolerance = field(default_factory=dict)
    layouts: Mapping[str, Callable[[torch.Tensor], torch.Tensor]] = field(
        default_factory=lambda: LAYOUTS
    )
    checks: Collection[str] = KINDS
    deterministic: bool = False
    thorough: bool = True

    def __post_init__(self) -> None:
        for name in self.checks:
            if name not in KINDS:
                hint = did_you_mean(name, KINDS)
                raise InputError(f"checks: {name!r} is not one of {', '.join(KINDS)}{hint}")


def check_kernel(
    function: Function | Mapping[str, Function],
    reference: Function,
    cases: Mapping[str, Inputs | Callable[[], Inputs]] | Sequence[Inputs],
    **options: Any,
) -> TestReport:
    """Compare a function's results with a reference in float64.

    Args:
        function: what is checked; or several by name, such as one for each config, of which the
            first is the default.
        reference: computes the same from float64 tensors; other arguments stay as they are.
        cases: arguments by name, on the device where the function runs; or functions that make
            them, by name. The first is used for values, layouts and gradients.
        options: fields of `KernelChecks`.

    Returns:
        Every comparison; `raise_if_wrong` raises if one is wrong.

    Raises:
        InputError: there is no case, or an option is unknown or names no argument.
    """
    unknown = [name for name in options if name not in KernelChecks.__dataclass_fields__]
    if unknown:
        hint = did_you_mean(unknown[0], KernelChecks.__dataclass_fields__)
        raise InputError(f"check_kernel has no option {unknown[0]!r}{hint}")
    functions = function if isinstance(function, Mapping) else {"": function}
    named: dict[str, Any] = (
        {**cases} if isinstance(cases, Mapping) else {_text(one): one for one in cases}
    )
    if not all(isinstance(one, Mapping) or callable(one) for one in named.values()):
        raise InputError(_NO_CASE)
    if not named or not functions:
        raise InputError("check_kernel: give at least one case and one function")
    for what, given in {**functions, "reference": reference}.items():
        if not callable(given):
            what = what or "function"
            raise InputError(f"check_kernel: {what} is {given!r:.60}: give a function")
    with exact_floats():
        return _Checker(functions, reference, named, KernelChecks(**options)).report()


class _Checker:
    """The comparisons of one function."""

    def __init__(
        self,
        functions: Mapping[str, Function],
        reference: Function,
        cases: Mapping[str, Inputs | Callable[[], Inputs]],
        options: KernelChecks,
    ) -> None:
        self._reference, self._cases, self._options = reference, cases, options
        self._functions = {f" by {n}" if n else "": one for n, one in functions.items()}
        self._default = next(iter(functions.values()))
        first = self._first()
        tensors = {name: one for name, one in first.items() if isinstance(one, torch.Tensor)}
        self._on_cpu = all(one.device.type == "cpu" for one in tensors.values())
        self._rows: Rows = rows_of(options.tolerances)
        self._notes: list[str] = []
        self._found: list[ResultComparison] = []
        floats = [name for name, one in tensors.items() if one.is_floating_point()]
        varied = floats if options.varied is None else options.varied
        self._varied = [name for name in varied if name in tensors]
        self._floats = [name for name in self._varied if name in floats]
        optional = {name for name, one in first.items() if one is None}
        absent = {*varied, *options.gradients} - tensors.keys() - optional
        for name in sorted((absent | {*options.writes} - first.keys()) - {options.out}):
            has = f"the first case has no tensor {name!r}; it has {_text(first)}"
            raise InputError(f"check_kernel: {has}")

    def report(self) -> TestReport:
        for check in KINDS:
            if check in self._options.checks:
                getattr(self, f"_{check}")()
        named = getattr(self._default, "__name__", "kernel")
        return TestReport(named, tuple(self._found), tuple(dict.fromkeys(self._notes)))

    def _first(self) -> dict[str, Any]:
        return self._inputs(next(iter(self._cases.values())))

    def _inputs(self, case: Inputs | Callable[[], Inputs]) -> dict[str, Any]:
        """Return the arguments of a case, copied: a faulty function writes to any of them."""
        inputs: dict[str, Any] = converted(dict(case() if callable(case) else case), copied)
        return inputs

    def _shapes(self) -> None:
        """Check all cases with all functions, or with one in turn."""
        for place, (case, make) in enumerate(self._cases.items()):
            for turn, (config, function) in enumerate(self._functions.items()):
                if self._options.thorough or turn == place % len(self._functions):
                    self._compare("shapes", case + config, self._inputs(make), function)

    def _dtypes(self) -> None:
        """Check that results are no narrower than inputs whose dtype the reference keeps."""
        parts = tensor_parts(self._first()).values()
        floats = {x.dtype for x in parts if torch.is_tensor(x) and x.is_floating_point()}
        wanted = called(self._reference, **self._first())
        if isinstance(wanted, Failure) or not any({x.dtype} == floats for x in wanted):
            return
        got = called(self._default, **self._first())
        pairs = () if isinstance(got, Failure) else zip(got, wanted, strict=False)
        for place, (mine, its) in enumerate(pairs):
            # FP8 is a format to convert to, and sums may be wider.
            if {its.dtype} == floats and 1 < mine.itemsize <= its.itemsize:
                same = mine.dtype == its.dtype or not mine.is_floating_point()
                detail = f"it is {dtype_of(mine)}; the reference's is {dtype_of(its)}"
                one = (0.0, "") if same else (float("inf"), detail)
                self._found.append(ResultComparison("dtypes", f"result {place}", *one))

    def _values(self) -> None:
        for name in self._floats:
            dtype = self._first()[name].dtype
            for what, change in special_values(dtype, self._options.most).items():
                twice = self._options.thorough and (not self._on_cpu or what in SHOW_MASKS)
                for config, function in itertools.islice(self._functions.items(), 1 + twice):
                    inputs = self._first()
                    inputs[name] = change(inputs[name].double()).to(dtype)
                    self._compare("values", f"{name} {what}{config}", inputs, function)

    def _layouts(self) -> None:
        for name in self._varied:
            for layout, change in self._options.layouts.items():
                # Without all checks addresses alone differ.
                if layout in FLAT or self._options.thorough:
                    inputs = self._first()
                    if inputs[name].ndim > (layout not in FLAT):
                        inputs[name] = change(inputs[name])
                        # Nothing can be written to elements that share memory.
                        if name in self._options.writes and 0 in inputs[name].stride():
                            continue
                        self._compare("layouts", f"{name} {layout}", inputs, refuses=True)

    def _aliasing(self) -> None:
        """Check two inputs in one memory, and each input as the output where that is allowed."""
        out = self._options.out
        read = [name for name in self._varied if name not in self._options.writes]
        for one, other in itertools.combinations(read, 2):
            inputs = self._first()
            mine, its = inputs[one], inputs[other]
            if mine.shape == its.shape and mine.dtype == its.dtype:
                inputs[other] = mine
                name = f"{one} and {other} in one memory"
                self._compare("aliasing", name, inputs, refuses=True)
        for name in self._varied if out else ():
            inputs = self._first()
            inputs.pop(out, None)
            exact = self._exact(inputs)
            inputs[out] = inputs[name] = inputs[name].clone()
            if inputs[name].shape != exact[0].shape:
                self._notes.append(f"aliasing: {name} cannot be the output: its shape differs")
                continue
            self._compare("aliasing", f"{name} as {out}", inputs, exact=exact, refuses=True)

    def _exact(self, inputs: Inputs) -> tuple[torch.Tensor, ...]:
        return as_tuple(self._reference(**widened(inputs)))

    def _repeats(self) -> None:
        """Check that runs agree: races and unset memory make them differ."""
        config, function = next(iter(self._functions.items()))
        for case in dict.fromkeys((next(iter(self._cases)), list(self._cases)[-1])):
            inputs = self._inputs(self._cases[case])
            exact = self._exact(inputs)
            runs = [called(function, **converted(inputs, copied)) for _ in range(_RUNS)]
            whole = [run for run in runs if not isinstance(run, Failure)]
            if len(whole) < _RUNS:
                continue  # the check of shapes says why
            name = f"{_RUNS} runs of {case}{config}"
            differing = sum(
                _differing(one, other)
                for run in whole[1:]
                for one, other in zip(whole[0], run, strict=True)
            )
            found = ResultComparison("repeats", name, 0.0)
            if differing:
                detail = f"{differing} bytes differ between runs"
                # The order of atomic additions changes digits, and no more than rounding does.
                error = max(compared("repeats", name, x, exact, self._rows).excess for x in whole)
                if self._options.deterministic:
                    error = float("inf")
                elif error <= 1:
                    self._notes.append(f"repeats: {name}: {detail}, within the tolerance")
                found = ResultComparison("repeats", name, error, detail)
            self._found.append(found)

    def _gradients(self) -> None:
        if not self._options.gradients:
            return
        most = None if self._options.thorough else 2
        for case, make in itertools.islice(self._cases.items(), most):
            name, inputs = f"gradients at {case}", self._inputs(make)
            exact, given = self._exact(inputs), converted(inputs, copied)
            got = guarded("gradients", partial(self._differentiate, self._default, given, exact))
            if isinstance(got, Failure):
                self._found.append(compared("gradients", name, got, (), self._rows))
                continue
            want = self._differentiate(self._reference, widened(inputs), exact, got[0])
            self._found.append(compared("gradients", name, got[1], want[1], self._rows))

    def _differentiate(
        self,
        function: Function,
        inputs: dict[str, Any],
        exact: Sequence[torch.Tensor],
        given: Sequence[Any] = (),
    ) -> tuple[Sequence[Any], Sequence[Any]]:
        """Return the gradients that go in, random if none are given, and those that come out."""
        names = [name for name in self._options.gradients if torch.is_tensor(inputs[name])]
        leaves = {name: inputs[name].detach().requires_grad_() for name in names}
        results = as_tuple(function(**{**inputs, **leaves}))
        given = given or self._drawn(results, exact)
        pairs = zip(results, given, strict=False)
        ends = [(x, dy.to(x.dtype)) for x, dy in pairs if x.requires_grad and dy is not None]
        torch.autograd.backward([x for x, _ in ends], [dy for _, dy in ends])
        missing = [name for name in names if leaves[name].grad is None]
        if missing:
            raise RuntimeError(f"{missing[0]} gets no gradient")
        return given, [leaves[name].grad for name in names]

    def _drawn(
        self, results: Sequence[torch.Tensor], exact: Sequence[torch.Tensor]
    ) -> Sequence[torch.Tensor | None]:
        """Draw gradients of results; 0 where a right result has not the exact one's sign.

        ReLU lets the gradient through for one of the two, and not for the other.
        """
        drawn = [torch.randn_like(x) if x.requires_grad else None for x in results]
        for place, (got, want) in enumerate(zip(results, exact, strict=False)):
            dy = drawn[place]
            if dy is not None and excess(got.detach(), want, self._rows) <= 1:
                across = got.sign() != want.to(got.dtype).sign()
                drawn[place] = dy.masked_fill(across & ~got.isnan(), 0)
        return drawn

    def _compare(
        self,
        check: str,
        name: str,
        inputs: Inputs,
        function: Function | None = None,
        *,
        exact: tuple[torch.Tensor, ...] | None = None,
        refuses: bool = False,
    ) -> None:
        """Call the function, and compare its results and its inputs with what they should be."""
        if exact is None:
            exact = self._exact(inputs)
        out = inputs.get(self._options.out)
        kept = {*self._options.writes, self._options.out}
        before = {
            key: (value, value.clone())
            for key, value in tensor_parts(inputs).items()
            if isinstance(value, torch.Tensor) and value is not out
            if key.partition(".")[0] not in kept
        }
        got = called(function or self._default, **inputs)
        if isinstance(got, Failure) and refuses and got.detail.startswith(_REFUSALS):
            self._notes.append(f"{check}: {name} is refused: {got.detail.splitlines()[0]}")
            return
        found = compared(check, name, got, exact, self._rows)
        changed = [key for key, (now, old) in before.items() if _differing(now, old)]
        if changed and not isinstance(got, Failure):
            detail = f"the input {changed[0]} was written to"
            found = ResultComparison(check, name, float("inf"), detail)
        self._found.append(found)


def _text(values: Any) -> str:
    """Describe arguments: dtype and shape of tensors, and the values of others."""
    if not isinstance(values, Mapping):
        raise InputError(_NO_CASE)
    return ", ".join(
        f"{name} {tuple(value.shape)} {str(value.dtype).removeprefix('torch.')}"
        if isinstance(value, torch.Tensor)
        else f"{name}={value}"
        for name, value in values.items()
    )


def _differing(one: torch.Tensor, other: torch.Tensor) -> int:
    """Count the bytes that differ, in which NaN equals NaN."""
    # A single element is contiguous with any stride, and not as bytes.
    flat = torch.contiguous_format
    mine, its = (x.clone(memory_format=flat).view(-1).view(torch.uint8) for x in (one, other))
    return int((mine != its).sum())
