"""Launches of users' kernels that PyTorch's compiler traces.

Read in PyTorch 2.11 and 2.13: `torch/_higher_order_ops/triton_kernel_wrap.py` and
`torch/_inductor/runtime/triton_heuristics.py`.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from typing import Any, Final

_MARK: Final = "corrected_by_asmtune"


def no_dispatch() -> Any:
    """Return a context in which no mode sees an operation: tensors are no nodes of a graph."""
    import torch

    return torch._C._DisableTorchDispatch()


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
