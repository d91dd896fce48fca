"""Errors through a model: of each layer alone, and cumulative of every module.

Errors alone are those of innermost modules, which call no other module.
"""

from __future__ import annotations

import copy
import reprlib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final

import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode
from torch.utils.hooks import RemovableHandle

from asmtune.base.errors import USER_CODE_ERRORS, ArgumentTypeError, InputError
from asmtune.base.json_codec import printable
from asmtune.measure.accuracy import AccuracyStats, measure_accuracy

_HEADINGS: Final = ("module", "class", "alone", "cumulative")


@dataclass(frozen=True)
class LayerErrors:
    """Errors and costs of one call of a layer, or of a module that calls others.

    Attributes:
        name: the module's name in the model; with "#2" for its second call, and so on.
        kind: its class.
        alone: errors against the reference's layer on the same inputs; without elements for a
            module that calls others.
        cumulative: errors against the reference's layer in the reference model's own run; without
            elements where one of both has no output of floats.
        flops: of a layer's products, as PyTorch's flop counter has them.
        depth: in how many calls of modules it lies; 0 for the model itself, whose name is "".
    """

    name: str
    kind: str
    alone: AccuracyStats
    cumulative: AccuracyStats
    flops: int
    depth: int = 0


@dataclass(frozen=True)
class ModelTrace:
    """Errors through a model.

    Attributes:
        layers: in the order of their calls.
        output: errors of the model's output, against the reference model's.
        modules: calls of all modules, in the order in which they begin; the model's is the first.
    """

    layers: tuple[LayerErrors, ...]
    output: AccuracyStats
    modules: tuple[LayerErrors, ...] = ()

    def tree(self) -> str:
        """Return a line for each call of a module, indented by nesting.

        Errors are `rms_share`: "inf" where there is NaN or infinity that the reference lacks, "-"
        where nothing is measured.
        """
        rows = [_HEADINGS, *_cells(self.modules)]
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        line = "  ".join(f"{{:{'>' if n > 1 else '<'}{width}}}" for n, width in enumerate(widths))
        return "\n".join(line.format(*row) for row in rows)


def _cells(calls: tuple[LayerErrors, ...]) -> list[tuple[str, ...]]:
    """Make the cells of each call: what `_HEADINGS` names."""
    path, rows = list[str](), list[tuple[str, ...]]()
    for call in calls:
        del path[call.depth :]
        outer = f"{path[-1].partition('#')[0]}." if path else ""
        label = printable(call.name.removeprefix(outer)) or "(model)"
        errors = (_error(call.alone), _error(call.cumulative))
        rows.append(("  " * call.depth + label, printable(call.kind), *errors))
        path.append(call.name)
    return rows


def _error(stats: AccuracyStats) -> str:
    error = "inf" if stats.nonfinite else f"{stats.rms_share:.2g}"  # rms_share leaves NaN out
    return error if stats.elements else "-"


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
    layers: set[str] = set()

    def keep(call: _Call, _: Any, output: Any) -> None:
        if (value := first_floats(output)) is not None:
            expected[call.row.name] = value.clone()  # what comes after may update it in place

    def compare(call: _Call, kwargs: Any, output: Any) -> None:
        value, wanted, name = first_floats(output), expected.get(call.row.name), call.module
        if value is None:
            return
        if not call.innermost:
            if wanted is not None and wanted.shape == value.shape:
                call.row = replace(call.row, cumulative=measure_accuracy(value, wanted))
            return
        if name not in references:
            raise InputError(f"trace: reference= has no module {name!r}, which the model calls")
        with FlopCounterMode(display=False) as counter:
            layer = partial(references[name], *_double(call.inputs), **_double(kwargs))
            alone = measure_accuracy(value, _checked(call, first_floats(_in_fp64(name, layer))))
        cumulative = measure_accuracy(value, _checked(call, wanted))
        flops = counter.get_total_flops()
        call.row = replace(call.row, alone=alone, cumulative=cumulative, flops=flops)
        layers.add(call.row.name)

    with _evaluating(model):
        with _watched(exact, keep):
            wanted = first_floats(_in_fp64("its run", lambda: _called(exact, _double(batch))))
        with _watched(model, compare) as calls:
            output = first_floats(_called(model, batch))
    if output is None or wanted is None:
        raise InputError("trace: the model's output holds no tensor of floats")
    modules = tuple(call.row for call in calls)
    rows = tuple(row for row in modules if row.name in layers)
    return ModelTrace(rows, measure_accuracy(output, wanted), modules)


@dataclass
class _Call:
    """A call of a module while models run, what is known of it, and its inputs."""

    module: str
    row: LayerErrors
    innermost: bool = True
    inputs: Any = None


After = Callable[[_Call, dict[str, Any], Any], None]


def _inputs(module: nn.Module, args: tuple[Any, ...]) -> Any:
    """Return a module's inputs, copied where it overwrites them."""
    if not getattr(module, "inplace", False):
        return args
    return tuple(each.clone() if isinstance(each, torch.Tensor) else each for each in args)


@contextmanager
def _watched(model: nn.Module, after: After) -> Iterator[list[_Call]]:
    """Call hooks around each call of a module, the model's too; yield the calls in order."""
    counts, begun, path = Counter[str](), list[_Call](), list[_Call]()

    def enter(name: str, module: nn.Module, args: tuple[Any, ...]) -> None:
        if path:
            path[-1].innermost = False
        counts[name] += 1
        text = name if counts[name] == 1 else f"{name}#{counts[name]}"
        none = AccuracyStats(elements=0)
        row = LayerErrors(text, type(module).__name__, none, none, 0, len(path))
        path.append(_Call(name, row))
        begun.append(path[-1])
        path[-1].inputs = _inputs(module, args)

    def leave(_: nn.Module, __: Any, kwargs: dict[str, Any], output: Any) -> None:
        after(path[-1], kwargs, output)
        path.pop().inputs = None

    handles = list[RemovableHandle]()
    for name, module in model.named_modules():
        handles.append(module.register_forward_pre_hook(partial(enter, name)))
        handles.append(module.register_forward_hook(leave, with_kwargs=True))
    try:
        yield begun
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
        raise InputError(f"trace: the reference model gives no output of {call.row.name}")
    return value
