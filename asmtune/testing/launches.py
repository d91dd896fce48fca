"""Experiments with one launch, in a process of their own: guarded buffers, shifts, orders.

The process may use Triton's interpreter while its parent reads compiled code, and a kernel that
writes where it must not can end this process alone. A line of JSON comes in for each trial, and one
goes out with its result.
"""

from __future__ import annotations

import contextlib
import hashlib
import inspect
import json
import math
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Final, cast

from asmtune.base.child import die_with_parent, own_stdout

GUARDS: Final = {"nan": math.nan, "three": 3.0}
"""Values of the memory around arguments; what differs between them was read from there."""

_LEAST_GUARD: Final = 1 << 14
_MOST_GUARD: Final = 1 << 20
_ALIGNED: Final = 256


@dataclass(frozen=True)
class Trial:
    """One launch.

    Attributes:
        shape: the sizes; of a plain function its numbers.
        dtype: of the module's; "" for a plain function.
        config: the config's values and options.
        guard: name of the value around the arguments, of `GUARDS`.
        shifted: puts each argument one element behind an aligned address.
        backwards: runs the programs in the reverse order, under the interpreter.
        arguments: of a plain function: (dtype, shape) of tensors, and the values of others.
        grid: of a plain function.
    """

    shape: Mapping[str, Any]
    dtype: str
    config: Mapping[str, Any]
    guard: str = "nan"
    shifted: bool = False
    backwards: bool = False
    arguments: Mapping[str, Any] = field(default_factory=dict)
    grid: tuple[int, ...] = ()


@dataclass(frozen=True)
class TrialResult:
    """The outcome of a trial.

    Attributes:
        excess: error by what is allowed, as `ResultComparison.excess`.
        detail: the worst element; "" if the result is right.
        digest: of the outputs' bytes.
        touched: what was written around the arguments, a sentence each.
        refused: why there was no launch: the module does not make such a problem.
        error: what the launch raised, or how the process ended.
    """

    excess: float = math.inf
    detail: str = ""
    digest: str = ""
    touched: tuple[str, ...] = ()
    refused: str = ""
    error: str = ""

    @property
    def wrong(self) -> bool:
        """Return whether the result is wrong, or there is none."""
        return not self.refused and not self.excess <= 1


@dataclass(frozen=True)
class TrialSubject:
    """What a trial process launches.

    Attributes:
        kernel: a kernel module, or `file.py:function`.
        reference: `file.py:function`; "" for the module's own `reference`.
        outputs: arguments that the reference computes, in order.
        device: "cuda" or "cpu".
        rows: rows of the table of tolerances by dtype.
    """

    kernel: str
    reference: str
    outputs: tuple[str, ...]
    device: str
    rows: Mapping[str, str]


class TrialProcess:
    """Runs the trials of a subject."""

    def __init__(self, subject: TrialSubject) -> None:
        from asmtune.core.kernel_module import import_module, load_kernel_module

        self._subject = subject
        where, _, function = subject.kernel.rpartition(":")
        self._module = None if where else load_kernel_module(subject.kernel)
        self._function = _jitted(getattr(import_module(where), function)) if where else None
        self._reference = self._load_reference()

    def _load_reference(self) -> Callable[[Mapping[str, Any]], Any]:
        from asmtune.base.errors import ProblemError
        from asmtune.core.kernel_module import import_module

        if not self._subject.reference:
            own = getattr(self._module and self._module.python, "reference", None)
            if own is None:
                raise ProblemError(
                    f"{self._subject.kernel} has no reference(arguments): name one by --reference "
                    "file.py:function, which takes the kernel's parameters that it needs"
                )
            return cast("Callable[[Mapping[str, Any]], Any]", own)
        where, _, name = self._subject.reference.rpartition(":")
        function = getattr(import_module(where), name, None) if where else None
        if not callable(function):
            raise ProblemError(f"--reference {self._subject.reference}: no such file.py:function")
        names = list(inspect.signature(function).parameters)
        if names == ["arguments"]:
            return cast("Callable[[Mapping[str, Any]], Any]", function)
        return lambda arguments: function(**{n: arguments[n] for n in names if n in arguments})

    def run(self, trial: Trial) -> TrialResult:
        """Launch once, and compare."""
        import torch

        from asmtune.core.failures import guarded
        from asmtune.core.records.artifacts import Failure

        torch.manual_seed(0)
        made = guarded("problem", lambda: self._launch_of(trial))
        if isinstance(made, Failure):
            return TrialResult(refused=made.detail.splitlines()[0])
        result = guarded("launch", lambda: self._judged(trial, *made))
        if isinstance(result, Failure):
            return TrialResult(error=result.detail.splitlines()[0])
        return result

    def _launch_of(self, trial: Trial) -> tuple[Any, dict[str, Any], Any, tuple[Any, ...]]:
        """Return kernel, arguments, grid, and the exact outputs."""
        import torch

        from asmtune.testing.inputs import widened
        from asmtune.testing.reports import as_tuple

        device = self._subject.device
        if self._module is not None:
            problem = self._module.problem(trial.shape, trial.dtype, device)
            kernel, values, grid = problem.kernel, dict(problem.arguments), problem.grid
        else:
            values = {n: _random(v, device) for n, v in trial.arguments.items()}
            kernel, grid = self._function, tuple(trial.grid)
        # A launch in place changes them; a reference of the user's own gets float64.
        copies = {
            name: value.clone() if isinstance(value, torch.Tensor) else value
            for name, value in values.items()
        }
        if self._subject.reference:
            copies = widened(copies)
        with torch.no_grad():
            exact = as_tuple(self._reference(copies))
        return kernel, values, grid, exact

    def _judged(
        self,
        trial: Trial,
        kernel: Any,
        values: dict[str, Any],
        grid: Any,
        exact: tuple[Any, ...],
    ) -> TrialResult:
        import torch

        from asmtune.testing.reports import compared

        buffers: dict[tuple[int, int], GuardedBuffer] = {}
        for name, value in values.items():
            if isinstance(value, torch.Tensor):
                key = value.data_ptr(), _extent(value)
                if key not in buffers:
                    fill = GUARDS[trial.guard]
                    buffers[key] = GuardedBuffer(name, value, fill, shifted=trial.shifted)
                values[name] = buffers[key].at(value)
        with torch.no_grad(), _backwards() if trial.backwards else contextlib.nullcontext():
            kernel[grid](**values, **trial.config)
        if self._subject.device == "cuda":
            torch.cuda.synchronize()
        outputs = [values[name] for name in self._subject.outputs]
        found = compared("trial", "", outputs, exact, self._subject.rows)
        touched = [text for buffer in buffers.values() for text in buffer.touched()]
        return TrialResult(found.excess, found.detail, _digest(outputs), tuple(touched))


class GuardedBuffer:
    """A copy of a tensor with marked memory before and behind it.

    Args:
        name: of the argument.
        value: the tensor.
        fill: value of the memory around it; whole numbers take 0 for NaN.
        shifted: puts the copy one element behind an aligned address.
    """

    def __init__(self, name: str, value: Any, fill: float, *, shifted: bool = False) -> None:
        import torch

        extent = _extent(value)
        guard = min(max(_LEAST_GUARD, extent), _MOST_GUARD) // _ALIGNED * _ALIGNED
        if not value.dtype.is_floating_point:
            fill = 0.0 if math.isnan(fill) else 1.0
        whole = torch.full((2 * guard + extent + 1,), fill, device=value.device).to(value.dtype)
        self._name, self._start, self._extent = name, guard + shifted, extent
        self._whole = whole
        # Elements that share memory, as of an expanded tensor, are written once each.
        dense = value.as_strided((extent,), (1,))
        whole[self._start : self._start + extent] = dense
        self._before = _bytes(whole).clone()

    def at(self, value: Any) -> Any:
        """Return a tensor of the shape and strides of another, in this memory."""
        return self._whole.as_strided(value.shape, value.stride(), self._start)

    def touched(self) -> list[str]:
        """Say how many elements before and behind the tensor have changed."""
        size = self._whole.element_size()
        changed = (_bytes(self._whole) != self._before).view(-1, size).any(1).nonzero().view(-1)
        end, found = self._start + self._extent, []
        before, behind = changed[changed < self._start], changed[changed >= end]
        if len(before):
            first = self._start - int(before.max())
            found.append(
                f"{len(before)} elements before the start of {self._name} were written, "
                f"the nearest {first} before it"
            )
        if len(behind):
            first = int(behind.min()) - end
            found.append(
                f"{len(behind)} elements behind the end of {self._name} were written, "
                f"the nearest at index {self._extent + first} of {self._extent}"
            )
        return found


def _extent(value: Any) -> int:
    if not value.numel():
        return 0
    return 1 + sum((int(n) - 1) * int(s) for n, s in zip(value.shape, value.stride(), strict=True))


def _bytes(tensor: Any) -> Any:
    import torch

    return tensor.contiguous().view(-1).view(torch.uint8)


def _digest(outputs: list[Any]) -> str:
    state = hashlib.sha256()
    for one in outputs:
        state.update(_bytes(one).cpu().numpy().tobytes())
    return state.hexdigest()


def _random(value: Any, device: str) -> Any:
    import torch

    from asmtune.core.dtypes import torch_dtype

    if not isinstance(value, list):
        return value
    dtype, shape = torch_dtype(value[0]), value[1]
    if dtype.is_floating_point:
        return torch.randn(shape, device=device).to(dtype)
    return torch.randint(0, 2, shape, device=device).to(dtype)


def _jitted(function: Any) -> Any:
    import triton

    return triton.jit(function) if inspect.isfunction(function) else function


@contextlib.contextmanager
def _backwards() -> Iterator[None]:
    """Let Triton's interpreter run the programs of a grid from the last to the first."""
    from triton.runtime import interpreter

    builder: Any = interpreter.interpreter_builder
    forwards = builder.set_grid_idx

    def reverse(x: int, y: int, z: int) -> None:
        sizes = builder.grid_dim
        forwards(*(size - 1 - at for size, at in zip(sizes, (x, y, z), strict=True)))

    builder.set_grid_idx = reverse
    try:
        yield
    finally:
        builder.set_grid_idx = forwards


def main() -> None:
    """Answer trials, a line of JSON each, until there are no more."""
    die_with_parent()
    answers = own_stdout()
    from asmtune.base.errors import AsmtuneError

    def answer(document: Mapping[str, Any]) -> None:
        answers.write(json.dumps(document) + "\n")
        answers.flush()

    subject = json.loads(sys.stdin.readline())
    try:
        process = TrialProcess(TrialSubject(**{**subject, "outputs": tuple(subject["outputs"])}))
    except AsmtuneError as error:
        answer({"refusal": str(error)})
        return
    answer({})
    for line in sys.stdin:
        trial = Trial(**json.loads(line))
        answer(asdict(process.run(trial)))


if __name__ == "__main__":
    main()
