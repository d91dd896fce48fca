"""Errors through a model: of each layer alone and cumulative, and which layers to keep in 16 bits.

Only innermost modules have a row: those that call no other module.
"""

from __future__ import annotations

import copy
import math
import reprlib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Final, Literal

import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode
from torch.utils.hooks import RemovableHandle

from asmtune.base.errors import USER_CODE_ERRORS, ArgumentTypeError, InputError
from asmtune.measure.accuracy import AccuracyStats, measure_accuracy

_PREFIX: Final = "asmtune:"

Call = tuple[str, int]  # a module's name, and the number of its call
Hook = Callable[[Call, nn.Module, tuple[Any, ...], dict[str, Any], Any], None]


@dataclass(frozen=True)
class LayerErrors:
    """Errors and costs of one call of a layer.

    Attributes:
        name: the module's name in the model; with "#2" for its second call, and so on.
        kind: its class.
        alone: errors against the reference's layer on the same inputs.
        cumulative: errors against the reference's layer in the reference model's own run.
        flops: of its products, as PyTorch's flop counter has them.
        seconds: of the profiler: GPU time where there is any, else CPU time; the mean of a call.
    """

    name: str
    kind: str
    alone: AccuracyStats
    cumulative: AccuracyStats
    flops: int
    seconds: float


@dataclass(frozen=True)
class ModelTrace:
    """Errors through a model.

    Attributes:
        layers: in the order of their calls.
        output: errors of the model's output, against the reference model's.
    """

    layers: tuple[LayerErrors, ...]
    output: AccuracyStats


def trace(
    model: nn.Module, batch: Any, *, reference: nn.Module | None = None, repeats: int = 3
) -> ModelTrace:
    """Measure the errors of each layer of a model on a batch, and where its time goes.

    The models run in evaluation mode, without gradients, and are left as they were, but that an
    `Fp8Linear` which has seen nothing takes its scales from this batch. PyTorch's fused path of
    transformer layers, which calls no inner module, and `torch.compile` are off meanwhile. Of a
    tuple or mapping the first tensor of floats is measured.

    Args:
        model: the model in low precision.
        batch: its input: a tensor, a tuple of positional or a mapping of named arguments.
        reference: a model of the same module names, such as that which `model` was converted from;
            by default a copy of `model`. A copy of it runs in fp64.
        repeats: profiled runs; 0 leaves the profiler out, and `seconds` at 0.

    Raises:
        InputError: a model is no module or takes no hooks, the reference cannot be copied or run in
            fp64, the models do not call the same layers, or the output has no float tensor.
    """
    check_module("trace: model", model)
    original = check_module("trace: reference", model if reference is None else reference)
    if isinstance(repeats, bool) or not isinstance(repeats, int) or repeats < 0:
        raise InputError(f"trace: repeats={repeats!r}: give a whole number, 0 for no profiler")
    exact = _in_fp64("its copy", lambda: copy.deepcopy(original).double().eval())
    layers = dict(exact.named_modules())
    expected: dict[Call, torch.Tensor] = {}
    found: list[LayerErrors] = []

    def keep(call: Call, _: nn.Module, __: Any, ___: Any, output: Any) -> None:
        if (value := first_floats(output)) is not None:
            expected[call] = value.clone()  # what comes after may update it in place

    def compare(call: Call, module: nn.Module, args: Any, kwargs: Any, output: Any) -> None:
        value = first_floats(output)
        if value is None:
            return
        if call[0] not in layers:
            raise InputError(f"trace: reference= has no module {call[0]!r}, which the model calls")
        with FlopCounterMode(display=False) as counter:
            layer = partial(layers[call[0]], *_double(args), **_double(kwargs))
            alone = first_floats(_in_fp64(call[0], layer))
        found.append(
            LayerErrors(
                name=_text(call),
                kind=type(module).__name__,
                alone=measure_accuracy(value, _checked(call, alone)),
                cumulative=measure_accuracy(value, _checked(call, expected.get(call))),
                flops=counter.get_total_flops(),
                seconds=0.0,
            )
        )

    with ExitStack() as stack:
        stack.enter_context(_evaluating(model))
        with _watched(exact, keep):
            output = _in_fp64("its run", lambda: _called(exact, _double(batch)))
            wanted = first_floats(output)
        with _watched(model, compare):
            output = first_floats(_called(model, batch))
        seconds = _profiled(model, batch, repeats) if repeats else {}
    if output is None or wanted is None:
        raise InputError("trace: the model's output holds no tensor of floats")
    rows = tuple(replace(each, seconds=seconds.get(each.name, 0.0)) for each in found)
    return ModelTrace(rows, measure_accuracy(output, wanted))


@dataclass(frozen=True)
class PrecisionPolicy:
    """Layers by precision.

    Attributes:
        low: names of layers in low precision.
        high: names of layers that stay in 16 bits, the one taken out first at the front.
        error: the estimated error with this policy; see `choose_precision`.
        share: share of the candidates' seconds or FLOPs that stay in low precision.
    """

    low: tuple[str, ...]
    high: tuple[str, ...]
    error: float
    share: float


def choose_precision(
    found: ModelTrace,
    budget: float,
    names: Sequence[str],
    by: Literal["seconds", "flops"] = "flops",
) -> PrecisionPolicy:
    """Choose which layers stay in 16 bits, so that the estimated error is within a budget.

    The estimate is the root of the sum of the squares of the layers' own relative errors (RMS of
    the error over RMS of the output), as if these were independent and passed through unchanged.
    Greedily the layer with the most squared error per FLOP or second is taken out first: it buys
    the most accuracy for the least speed. A layer that gives NaN or infinity where its reference
    does not never stays in low precision. Trace the mixed model to know its error.

    Args:
        found: trace of the model with all candidates in low precision.
        budget: largest estimated relative error.
        names: candidates; all calls of a layer count together.
        by: what low precision is worth.

    Raises:
        InputError: a name is not in the trace, or the budget is negative.
    """
    if by not in ("seconds", "flops") or not 0 <= budget < math.inf:
        raise InputError(f"by={by!r}, budget={budget!r}: give 'seconds' or 'flops', and 0 or more")
    errors: Counter[str] = Counter()
    costs: Counter[str] = Counter()
    for layer in found.layers:
        name = layer.name.partition("#")[0]
        # rms_share leaves out places that are not finite.
        share = math.inf if layer.alone.nonfinite else layer.alone.rms_share
        errors[name] += share**2  # type: ignore[assignment]
        costs[name] += getattr(layer, by)
    unknown = [name for name in names if name not in errors]
    if unknown:
        raise InputError(f"choose_precision: {unknown[0]!r} is no layer of the trace")
    low = sorted(names, key=lambda name: errors[name] / costs[name] if costs[name] else math.inf)
    high: list[str] = []
    while low and math.sqrt(math.fsum(errors[name] for name in low)) > budget:
        high.append(low.pop())
    whole = math.fsum(costs[name] for name in names)
    return PrecisionPolicy(
        low=tuple(name for name in names if name in low),
        high=tuple(high),
        error=math.sqrt(math.fsum(errors[name] for name in low)),
        share=math.fsum(costs[name] for name in low) / whole if whole else 0.0,
    )


@dataclass
class _Calls:
    """Numbers the calls of modules, and knows which call another module."""

    counts: Counter[str] = field(default_factory=Counter)
    open: list[list[Any]] = field(default_factory=list)  # [call, has inner calls, kept inputs]

    def enter(self, name: str, inputs: Any = None) -> Call:
        for outer in self.open:
            outer[1] = True
        self.counts[name] += 1
        self.open.append([(name, self.counts[name]), False, inputs])
        return name, self.counts[name]

    def leave(self) -> tuple[Call | None, Any]:
        """Return the call that ends, if it is an innermost one, and its kept inputs."""
        call, has_inner, inputs = self.open.pop()
        return None if has_inner else call, inputs


@contextmanager
def _watched(model: nn.Module, hook: Hook) -> Iterator[None]:
    """Call a hook after each innermost module of a model."""
    calls, handles = _Calls(), list[RemovableHandle]()
    for name, module in model.named_modules():
        if not name:
            continue

        def before(module: nn.Module, args: Any, name: str = name) -> None:
            in_place = getattr(module, "inplace", False)
            calls.enter(name, tuple(map(_cloned, args)) if in_place else None)

        def after(module: nn.Module, args: Any, kwargs: Any, output: Any) -> None:
            call, kept = calls.leave()
            if call is not None:
                hook(call, module, args if kept is None else kept, kwargs, output)

        handles.append(module.register_forward_pre_hook(before))
        handles.append(module.register_forward_hook(after, with_kwargs=True))
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


def check_module(what: str, model: Any) -> nn.Module:
    """Return a model that hooks can watch.

    Raises:
        ArgumentTypeError: it is no `nn.Module`.
        InputError: a part of it is a ScriptModule.
    """
    if not isinstance(model, nn.Module):
        raise ArgumentTypeError(f"{what} is {reprlib.repr(model)}; give an nn.Module")
    for name, module in model.named_modules():
        if isinstance(module, torch.jit.ScriptModule):
            where = f"its module {name!r}" if name else "it"
            raise InputError(
                f"{what}: {where} is a ScriptModule, which takes no hooks; give the nn.Module that "
                "it was made from"
            )
    return model


def _in_fp64(what: str, work: Callable[[], Any]) -> Any:
    """Return what the reference's code in fp64 gives.

    Raises:
        InputError: it raised; a model that casts to a dtype of its own has no run in fp64.
    """
    try:
        return work()
    except (*USER_CODE_ERRORS, RuntimeError) as error:
        cause = next(iter(str(error).splitlines()), "")
        raise InputError(
            f"trace: the reference in fp64: {what}: {type(error).__name__}: {cause}; give a "
            "reference= that can be copied and runs in fp64, and a batch that fits it"
        ) from error


@contextmanager
def _evaluating(model: nn.Module) -> Iterator[None]:
    """Switch to evaluation, without gradients, fused transformer layers and compiling, and back."""
    modes = {module: module.training for module in model.modules()}
    fused = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)
    model.eval()
    try:
        # A compiled module would compile the hooks as well, or call no inner module.
        with torch.no_grad(), torch.compiler.set_stance("force_eager"):
            yield
    finally:
        torch.backends.mha.set_fastpath_enabled(fused)
        for module, training in modes.items():
            module.training = training


def _profiled(model: nn.Module, batch: Any, repeats: int) -> dict[str, float]:
    """Return the seconds of a call of each module by the profiler."""
    from torch.profiler import ProfilerActivity, profile, record_function

    activities = [ProfilerActivity.CPU]
    if torch.cuda.is_available():
        activities.append(ProfilerActivity.CUDA)
    calls, handles, ranges = _Calls(), list[RemovableHandle](), list[Any]()

    def begin(name: str) -> None:
        call = calls.enter(name)
        ranges.append(record_function(f"{_PREFIX}{_text(call)}"))
        ranges[-1].__enter__()

    def end(*_: Any) -> None:
        calls.leave()
        ranges.pop().__exit__(None, None, None)

    for name, module in model.named_modules():
        if name:
            handles.append(module.register_forward_pre_hook(lambda *_, name=name: begin(name)))
            handles.append(module.register_forward_hook(end))
    try:
        _called(model, batch)  # warm
        with profile(activities=activities) as profiler:
            for _ in range(repeats):
                calls.counts.clear()
                _called(model, batch)
    finally:
        for handle in handles:
            handle.remove()
    return {
        event.key.removeprefix(_PREFIX): (event.device_time_total or event.cpu_time_total)
        / max(1, event.count)
        / 1e6
        for event in profiler.key_averages()
        if event.key.startswith(_PREFIX)
    }


def _called(model: nn.Module, batch: Any) -> Any:
    if isinstance(batch, Mapping):
        return model(**batch)
    return model(*batch) if isinstance(batch, tuple) else model(batch)


def _cloned(value: Any) -> Any:
    return value.clone() if isinstance(value, torch.Tensor) else value


def _double(value: Any) -> Any:
    """Convert floating-point tensors to fp64, also inside of tuples, lists and mappings."""
    if isinstance(value, torch.Tensor):
        return value.double() if value.is_floating_point() else value
    if isinstance(value, Mapping):
        return {key: _double(item) for key, item in value.items()}
    if hasattr(value, "_make"):  # a named tuple
        return value._make(map(_double, value))
    return type(value)(map(_double, value)) if isinstance(value, tuple | list) else value


def first_floats(output: Any) -> torch.Tensor | None:
    """Return the first floating-point tensor of an output, inside of tuples, lists, mappings."""
    if isinstance(output, torch.Tensor):
        return output if output.is_floating_point() else None
    parts = output.values() if isinstance(output, Mapping) else output
    if not isinstance(output, Mapping | tuple | list):
        return None
    return next((found for part in parts if (found := first_floats(part)) is not None), None)


def _checked(call: Call, value: torch.Tensor | None) -> torch.Tensor:
    if value is None:
        raise InputError(f"trace: the reference model gives no output of {_text(call)}")
    return value


def _text(call: Call) -> str:
    return call[0] if call[1] == 1 else f"{call[0]}#{call[1]}"
