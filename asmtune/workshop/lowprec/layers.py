"""Errors through a model: of each layer alone, and cumulative.

Layers are innermost modules, which call no other module.
"""

from __future__ import annotations

import copy
import reprlib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode
from torch.utils.hooks import RemovableHandle

from asmtune.base.errors import USER_CODE_ERRORS, ArgumentTypeError, InputError
from asmtune.measure.accuracy import AccuracyStats, measure_accuracy


@dataclass(frozen=True)
class LayerErrors:
    """Errors and costs of one call of a layer.

    Attributes:
        name: the module's name in the model; with "#2" for its second call, and so on.
        kind: its class.
        alone: errors against the reference's layer on the same inputs.
        cumulative: errors against the reference's layer in the reference model's own run.
        flops: of a layer's products, as PyTorch's flop counter has them.
    """

    name: str
    kind: str
    alone: AccuracyStats
    cumulative: AccuracyStats
    flops: int


@dataclass(frozen=True)
class ModelTrace:
    """Errors through a model.

    Attributes:
        layers: in the order of their calls.
        output: errors of the model's output, against the reference model's.
    """

    layers: tuple[LayerErrors, ...]
    output: AccuracyStats


def trace(model: nn.Module, batch: Any, *, reference: nn.Module | None = None) -> ModelTrace:
    """Measure the errors of each layer of a model on a batch.

    The models run in evaluation mode, without gradients, and are left as they were, but that an
    `Fp8Linear` which has seen nothing takes its scales from this batch. PyTorch's fused path of
    transformer layers, which calls no inner module, and `torch.compile` are off meanwhile. If
    a layer returns a tuple or mapping, its first tensor of floats is measured.

    Args:
        model: the model in low precision.
        batch: its input: a tensor, a tuple of positional or a mapping of named arguments.
        reference: a model of the same module names, such as that which `model` was converted from;
            by default a copy of `model`. A copy of it runs in fp64.

    Raises:
        InputError: a model is no module or takes no hooks, the reference cannot be copied or run in
            fp64, the models do not call the same layers, or the output has no float tensor.
    """
    check_module("trace: model", model)
    original = check_module("trace: reference", model if reference is None else reference)
    exact = _in_fp64("its copy", lambda: copy.deepcopy(original).double().eval())
    references = dict(exact.named_modules())
    expected: dict[str, torch.Tensor] = {}
    layers: list[LayerErrors] = []

    def keep(call: _Call, _: Any, output: Any) -> None:
        if (value := first_floats(output)) is not None:
            expected[call.name] = value.clone()  # what comes after may update it in place

    def compare(call: _Call, kwargs: Any, output: Any) -> None:
        value = first_floats(output)
        if value is None:
            return
        if call.module not in references:
            raise InputError(f"trace: reference= has no module {call.module!r}, which is called")
        with FlopCounterMode(display=False) as counter:
            layer = partial(references[call.module], *_double(call.inputs), **_double(kwargs))
            wanted = _checked(call, first_floats(_in_fp64(call.module, layer)))
        alone = measure_accuracy(value, wanted)
        cumulative = measure_accuracy(value, _checked(call, expected.get(call.name)))
        flops = counter.get_total_flops()
        layers.append(LayerErrors(call.name, call.kind, alone, cumulative, flops))

    with _evaluating(model):
        with _watched(exact, keep):
            wanted = first_floats(_in_fp64("its run", lambda: _called(exact, _double(batch))))
        with _watched(model, compare):
            output = first_floats(_called(model, batch))
    if output is None or wanted is None:
        raise InputError("trace: the model's output holds no tensor of floats")
    return ModelTrace(tuple(layers), measure_accuracy(output, wanted))


@dataclass
class _Call:
    """A call of a module while models run: its name, with "#2" at the second, and its inputs."""

    module: str
    name: str
    kind: str
    inputs: Any
    innermost: bool = True


After = Callable[[_Call, dict[str, Any], Any], None]


def _inputs(module: nn.Module, args: tuple[Any, ...]) -> Any:
    """Return a module's inputs, copied where it overwrites them."""
    if not getattr(module, "inplace", False):
        return args
    return tuple(each.clone() if isinstance(each, torch.Tensor) else each for each in args)


@contextmanager
def _watched(model: nn.Module, after: After) -> Iterator[None]:
    """Call `after` behind each call of an innermost module."""
    counts, path = Counter[str](), list[_Call]()

    def enter(name: str, module: nn.Module, args: tuple[Any, ...]) -> None:
        if path:
            path[-1].innermost = False
        counts[name] += 1
        text = name if counts[name] == 1 else f"{name}#{counts[name]}"
        path.append(_Call(name, text, type(module).__name__, _inputs(module, args)))

    def leave(_: nn.Module, __: Any, kwargs: dict[str, Any], output: Any) -> None:
        if path[-1].innermost:
            after(path[-1], kwargs, output)
        path.pop()

    handles = list[RemovableHandle]()
    for name, module in model.named_modules():
        handles.append(module.register_forward_pre_hook(partial(enter, name)))
        handles.append(module.register_forward_hook(leave, with_kwargs=True))
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


def _called(model: nn.Module, batch: Any) -> Any:
    if isinstance(batch, Mapping):
        return model(**batch)
    return model(*batch) if isinstance(batch, tuple) else model(batch)


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


def _checked(call: _Call, value: torch.Tensor | None) -> torch.Tensor:
    if value is None:
        raise InputError(f"trace: the reference model gives no output of {call.name}")
    return value
