"""Launches of users' kernels that PyTorch's compiler traces.

Read in PyTorch 2.11 and 2.13: `torch/_higher_order_ops/triton_kernel_wrap.py` and
`torch/_inductor/runtime/triton_heuristics.py`.
"""

from __future__ import annotations

import functools
import inspect
import sys
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Final, Protocol

import triton

if TYPE_CHECKING:
    from torch import Tensor

_CALL_HOP: Final = ["self", "variable", "grids", "combined_args", "tx"]
_MARK: Final = "corrected_by_asmtune"

Operands = Callable[[Mapping[str, Any], Sequence[Any]], dict[str, Any]]
"""Makes an operator's keywords from a launch's arguments by name and its grid with each config."""


class LaunchTaker(Protocol):
    """Decides which traced launches become an operator of asmtune's."""

    def owns(self, kernel: Any) -> bool:
        """Return whether a launch of this autotuner is asmtune's to decide."""

    def operator(self) -> Any:
        """Return the operator."""

    def operands(
        self, kernel: Any, examples: Mapping[str, Any], descriptors: Mapping[str, Any]
    ) -> Operands | None:
        """Return what makes its operands; None to trace the launch with the last config alone."""


@functools.cache
def carried_options() -> frozenset[str]:
    """Return which of `num_ctas` and `maxnreg` the installed Inductor passes to Triton.

    Its own functions are asked with a config; one that works otherwise carries none.
    """
    wanted = {"num_ctas": 2, "maxnreg": 64}
    try:
        from torch._inductor.runtime import triton_heuristics as inductor

        sent = inductor.config_from_dict(inductor.config_to_dict(triton.Config({}, **wanted)))
        tuner: Any = object.__new__(inductor.CachingAutotuner)
        tuner.device_props = SimpleNamespace(type="cuda", cc=90)
        tuner.inductor_meta, tuner.fn = {}, SimpleNamespace(params=(), constexprs=(), arg_names=())
        tuner.triton_meta = {"constants": {}, "signature": {}}
        options = tuner._create_compile_options(sent, tuner._create_compile_meta(sent))
    except (ImportError, AttributeError, KeyError, TypeError):
        return frozenset()
    return frozenset(name for name, value in wanted.items() if options.get(name) == value)


def take_launches(taker: LaunchTaker) -> bool:
    """Have the loaded parts of PyTorch's compiler ask `taker`; return False if they cannot."""
    from torch._higher_order_ops import triton_kernel_wrap

    needed = ("get_mutated_tensors", "kernel_side_table")
    base = getattr(triton_kernel_wrap, "TritonHOPifier", None)
    if base is None or not all(hasattr(triton_kernel_wrap, name) for name in needed):
        return False
    for kind in base.__subclasses__():
        call = getattr(kind, "call_HOP", None)
        if call is None or [*inspect.signature(call).parameters] != _CALL_HOP:
            return False
        if not hasattr(call, _MARK):
            kind.call_HOP = _asking(taker, call)
    return True


def _asking(taker: LaunchTaker, call: Callable[..., Any]) -> Callable[..., Any]:
    """Make the method that traces a launch: of configs that know theirs, as the operator."""

    @functools.wraps(call)
    def call_hop(self: Any, variable: Any, grids: Any, combined_args: Any, tx: Any) -> Any:
        if not taker.owns(variable.kernel):
            return call(self, variable, grids, combined_args, tx)
        if tx is not None:  # Dynamo
            result = call(self, variable, grids, combined_args, tx)
            _replace(taker, tx.output.graph)
            return result
        operands = taker.operands(variable.kernel, combined_args, {})
        if operands is not None:
            return taker.operator()(**operands(combined_args, grids))
        variable.kernel_idx = _number_of_last(variable.kernel)
        return call(self, variable, grids[-1:], combined_args, tx)

    setattr(call_hop, _MARK, True)
    return call_hop


def _replace(taker: LaunchTaker, graph: Any) -> None:
    """Replace the node that Dynamo has just made by one of the operator."""
    from torch._higher_order_ops.triton_kernel_wrap import kernel_side_table

    node = next(iter(reversed(graph.nodes)))
    kernel, grids = kernel_side_table.get_kernel(node.kwargs["kernel_idx"]), node.kwargs["grid"]
    nodes, descriptors = node.kwargs["kwargs"], node.kwargs["tma_descriptor_metadata"]
    constants = kernel_side_table.get_constant_args(node.kwargs["constant_args_idx"])
    examples = {name: value.meta["example_value"] for name, value in nodes.items()}
    operands = taker.operands(kernel, {**constants, **examples}, descriptors)
    if operands is None:
        alone = {"kernel_idx": _number_of_last(kernel), "grid": [grids[-1]]}
        node.kwargs = {**node.kwargs, **alone}
        return
    node.target = taker.operator()
    node.kwargs = operands(nodes, grids)


def _number_of_last(kernel: Any) -> int:
    """Return PyTorch's number of a kernel with the last of its configs alone."""
    from torch._higher_order_ops.triton_kernel_wrap import kernel_side_table

    last = kernel.configs[-1]
    options = (last.num_warps, last.num_stages, last.num_ctas, last.maxnreg)
    config = triton.Config(dict(last.kwargs), *options)
    return int(kernel_side_table.add_kernel(triton.autotune([config], key=[])(kernel.fn)))


def written_tensors(
    kernel: Any,
    tensors: Mapping[str, Tensor],
    symbols: Mapping[str, Any],
    constants: Iterable[Mapping[str, Any]],
) -> set[str]:
    """Return the tensors that a kernel writes with any of several sets of constant arguments.

    Args:
        kernel: an autotuner.
        tensors: its tensors by name; only their dtypes count.
        symbols: its other arguments that are no constants.
        constants: each set.
    """
    import torch
    from torch._higher_order_ops import triton_kernel_wrap as wrap

    # Tensors of functionalisation have no memory that PyTorch's reading of the IR could see.
    with no_dispatch():
        stand_ins = {n: torch.empty(2, dtype=value.dtype) for n, value in tensors.items()}
    number = wrap.kernel_side_table.add_kernel(kernel.fn)
    written: set[str] = set()
    for values in constants:
        kept = wrap.kernel_side_table.add_constant_args(dict(values))
        written |= {*wrap.get_mutated_tensors(number, kept, {**symbols, **stand_ins}, {})}
    return written & tensors.keys()


def no_dispatch() -> Any:
    """Return a context in which no mode sees an operation: tensors are no nodes of a graph."""
    import torch

    return torch._C._DisableTorchDispatch()


def is_exporting() -> bool:
    """Return whether the program that is compiled now will run without this process."""
    import torch

    virtualized = sys.modules.get("torch._inductor.virtualized")
    ahead = virtualized is not None and virtualized.V.aot_compilation is True
    return ahead or torch.compiler.is_exporting()


def size_functions() -> tuple[Callable[[Any, int], int], Callable[[Any], bool]]:
    """Return functions of a size: its hint, or the given number without one; if it is fixed."""
    from torch.fx.experimental import symbolic_shapes

    # Its name in 2.13, and that in 2.11.
    names = ("optimization_hint", "size_hint")
    hint = getattr(symbolic_shapes, next(name for name in names if hasattr(symbolic_shapes, name)))
    return hint, symbolic_shapes.has_static_value


def call_when_traced(function: Callable[..., Any]) -> None:
    """Have Dynamo call a function while it traces, and take its result for a constant.

    `torch.compiler.assume_constant_result` sets the same, and loads Dynamo to do it.
    """
    function._dynamo_marked_constant = True  # type: ignore[attr-defined]


def correct_dynamo() -> None:
    """Make the corrections that the loaded Dynamo lacks; do nothing if it is not loaded."""
    functions = sys.modules.get("torch._dynamo.variables.functions")
    hopifier: Any = getattr(functions, "DynamoTritonHOPifier", None)
    if hopifier is None or hasattr(hopifier, _MARK):
        return
    setattr(hopifier, _MARK, True)
    for name in ("TMADescriptorStableVariable", "TMADescriptorExperimentalVariable"):
        descriptor = getattr(functions, name, None)
        if descriptor is not None and "python_type" not in vars(descriptor):
            descriptor.python_type = lambda _: object
    if not hasattr(hopifier, "recreate_variable"):
        _keep_sources(hopifier)


def _keep_sources(hopifier: Any) -> None:
    """Hand the source of a kernel on to what wraps it anew."""
    current = threading.local()
    plain = {name: getattr(hopifier, name) for name in ("call_run", "call_triton_kernel")}

    def handing_on(name: str) -> Any:
        def call(self: Any, variable: Any, *rest: Any) -> Any:
            outer = getattr(current, "source", None)
            variable.kernel_source = variable.kernel_source or variable.source or outer
            current.source = variable.kernel_source
            try:
                return plain[name](self, variable, *rest)
            finally:
                current.source = outer

        return call

    for name in plain:
        setattr(hopifier, name, handing_on(name))
