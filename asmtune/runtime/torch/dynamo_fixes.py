"""Corrections to Dynamo, so that it can ask a kernel's `early_config_prune` for configs.

Where a kernel comes from: PyTorch 2.11 wraps a kernel anew for `kernel.run(...)`, which is how
`@triton.heuristics` on top launch it, and for `@triton.heuristics` underneath. The new wrapper
does not know in which variable the program holds the kernel, and asking its
`early_config_prune` then ends in an AssertionError: of `triton.autotune`'s kernels that have
one, and of all of asmtune's. 2.13 does it right.

What a tensor descriptor is: neither 2.11 nor 2.13 can tell, so that `isinstance` of one is a
graph break, where a launch with one is none.
"""

from __future__ import annotations

import sys
import threading
from typing import Any, Final

_MODULE: Final = "torch._dynamo.variables.functions"
_MARK: Final = "corrected_by_asmtune"


def correct_dynamo() -> None:
    """Makes the corrections that the loaded Dynamo lacks; does nothing where it is not loaded."""
    functions = sys.modules.get(_MODULE)
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
    """Makes what wraps a kernel anew hand its source on."""
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
