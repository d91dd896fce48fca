"""What an accuracy run calls, on which inputs, and what its reference is.

A kernel module is called by its public function, which has the module's name, with the arguments of
`inputs(shape, dtype, device)`; its reference is `baseline`. A module without a public function is
launched as its `problem` says, on its default config; its reference is `reference(arguments)`. A
plain function `file.py:function` takes `inputs`, `SHAPES`, `DTYPES` and `baseline` from its own
file; without `baseline` it is its own reference in wider numbers.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any, Final

from asmtune.base.errors import InputError, ProblemError
from asmtune.base.text import did_you_mean
from asmtune.core.dtypes import canonical_dtype
from asmtune.core.failures import required
from asmtune.core.inputs.shapes import parse_assignments
from asmtune.core.kernel_module import Shape, from_python_module, import_module
from asmtune.core.user_modules import user_code

Outputs = dict[str, Any]
"""Tensors by name; a single one has the name ""."""

_SPEC: Final = re.compile(r"(?P<function>[^()=,]*)(?:\((?P<keywords>.+)\))?")
_DTYPE: Final = "dtype"


@dataclass(frozen=True)
class Variant:
    """A way of calling a subject.

    Attributes:
        name: in tables.
        function: what is called.
        keywords: further arguments.
        dtype: of the inputs; None for that of the run.
    """

    name: str
    function: Callable[..., Any]
    keywords: Mapping[str, Any] = field(default_factory=dict)
    dtype: str | None = None


@dataclass(frozen=True)
class AccuracySubject:
    """A kernel module or a plain function, at one shape and dtype.

    Attributes:
        function: the public function, or a launch of the module's problem.
        is_launch: whether it is such a launch.
    """

    name: str
    module: ModuleType
    function: Callable[..., Any]
    shape: Shape
    dtype: str
    is_launch: bool = False

    @property
    def is_kernel(self) -> bool:
        """Return whether a Triton kernel is run, which a CPU can only interpret."""
        return hasattr(self.module, "kernel")

    def inputs(self, dtype: str, device: str) -> dict[str, Any]:
        """Make random arguments by name.

        Raises:
            InputError: the file has no `inputs`, or it raised.
        """
        if self.is_launch:
            kernel = from_python_module(self.module)
            what = f"problem of {self.name}"
            return dict(required(what, lambda: kernel.problem(self.shape, dtype, device)).arguments)
        if not hasattr(self.module, "inputs"):
            raise InputError(
                f"{self.name}: its file defines no inputs(shape, dtype, device), which makes its "
                "arguments by name; kernels/tiled_matmul.py shows one"
            )
        with user_code(self.module):
            make = self.module.inputs
            return dict(required(f"inputs of {self.name}", lambda: make(self.shape, dtype, device)))

    def outputs(self, variant: Variant, inputs: Mapping[str, Any]) -> Outputs:
        """Call a variant.

        Raises:
            ProblemError: it raised, or returned no tensors.
        """
        return self._called(f"variant {variant.name}", variant.function, inputs, variant.keywords)

    def reference(self, variant: Variant, inputs: Mapping[str, Any], against: str) -> Outputs:
        """Compute a variant's reference in "fp64" or "fp32".

        The reference takes those keywords of the variant that its signature has.

        Raises:
            InputError: there is no such reference, or it raised.
        """
        if self.is_launch:
            if against != "fp64" or not hasattr(self.module, "reference"):
                raise InputError(
                    f"--against {against}: kernel module {self.name} has no public function, and "
                    "is compared with its reference(arguments) in fp64; give it one"
                )
            reference = self.module.reference
            return self._called("reference", lambda **arguments: reference(arguments), inputs, {})
        function = getattr(self.module, "baseline", variant.function)
        takes = inspect.signature(function).parameters
        keywords = {name: value for name, value in variant.keywords.items() if name in takes}
        return self._called("reference", function, _widened(inputs, against), keywords)

    def _called(
        self,
        what: str,
        function: Callable[..., Any],
        inputs: Mapping[str, Any],
        keywords: Mapping[str, Any],
    ) -> Outputs:
        import torch

        where = f"{self.name}, {what}"
        with user_code(self.module), torch.no_grad():
            result = required(where, lambda: function(**{**inputs, **keywords}))
        if isinstance(result, torch.Tensor):
            return {"": result}
        if not isinstance(result, Mapping):
            values = result if isinstance(result, list | tuple) else ()
            own = [name.removesuffix("_ptr") for name in getattr(self.module, "OUTPUTS", ())]
            names = own if len(own) == len(values) else map(str, range(len(values)))
            result = dict(zip(names, values, strict=True))
        if not result or not all(isinstance(value, torch.Tensor) for value in result.values()):
            raise ProblemError(f"{where}: expected a tensor, or several, as result")
        return dict(result)


def _widened(inputs: Mapping[str, Any], against: str) -> dict[str, Any]:
    import torch

    dtype = {"fp64": torch.float64, "fp32": torch.float32}[against]
    return {
        name: value.to(dtype, copy=True)
        if isinstance(value, torch.Tensor) and value.is_floating_point()
        else value
        for name, value in inputs.items()
    }


def load_subject(kernel: str, shape: Shape | None, dtype: str | None) -> AccuracySubject:
    """Load a kernel module by name or file, or a function as `file.py:function`.

    Raises:
        InputError: it is unknown, or shape or dtype do not suit it.
    """
    if ":" in kernel:
        module, function = function_of(kernel)
        name = kernel.rpartition(":")[2]
        return AccuracySubject(name, module, function, *_sizes(module, name, shape, dtype))
    module = import_module(kernel)
    loaded = from_python_module(module)
    if shape is None:
        shape = loaded.shapes[0] if loaded.shapes else {}
    sizes, element = loaded.check_shape(shape), loaded.check_dtype(dtype)
    public = getattr(module, loaded.name, None)
    if callable(public) and hasattr(module, "inputs"):
        return AccuracySubject(loaded.name, module, public, sizes, element)

    def launch(**arguments: Any) -> Outputs:
        problem = loaded.problem(sizes, element, "meta")
        config = getattr(module, "DEFAULT", None) or loaded.space().default
        if config is None or not hasattr(module, "OUTPUTS"):
            raise ProblemError(f"kernel module {loaded.name} defines no DEFAULT, or no OUTPUTS")
        names = [name for name in arguments if name in problem.arguments]
        options = {n: v for n, v in arguments.items() if n not in names}
        taken = {name: arguments[name] for name in names}
        module.kernel[problem.grid](**taken, **{**config.all_kwargs(), **options})
        return {name.removesuffix("_ptr"): taken[name] for name in module.OUTPUTS}

    return AccuracySubject(loaded.name, module, launch, sizes, element, is_launch=True)


def function_of(reference: str) -> tuple[ModuleType, Callable[..., Any]]:
    """Load the module and the function of `file.py:function`.

    Raises:
        ProblemError: there is none.
    """
    where, _, name = reference.rpartition(":")
    module = import_module(where)
    return module, _function_in(module, name, where)


def _function_in(module: ModuleType, name: str, where: str) -> Callable[..., Any]:
    function = getattr(module, name, None)
    if not callable(function):
        hint = did_you_mean(name, vars(module))
        raise ProblemError(f"{where} defines no function {name!r}{hint}")
    return function  # type: ignore[no-any-return]


def _sizes(
    module: ModuleType, name: str, shape: Shape | None, dtype: str | None
) -> tuple[Shape, str]:
    """Check a function's shape and dtype by its file's; by default they are the file's first."""
    shapes = getattr(module, "SHAPES", ())
    known = [canonical_dtype(one) for one in getattr(module, "DTYPES", ())]
    if shape is None:
        shape = shapes[0] if shapes else {}
    if shapes and set(shape) != set(shapes[0]):
        example = ",".join(f"{size}={value}" for size, value in shapes[0].items())
        raise InputError(f"{name} takes other dimensions: write --shape {example}")
    element = (*known, "fp32")[0] if dtype is None else canonical_dtype(dtype)
    if known and element not in known:
        raise InputError(f"{name} does not support {element}: one of {', '.join(known)}")
    return shape, element


def variant_of(subject: AccuracySubject, name: str, spec: Any) -> Variant:
    """Make a variant of a function, keywords, or a text.

    Texts: "window=128", "other_function", "other_function(block=64)", "file.py:function"; the
    keyword "dtype" is the inputs' dtype unless the function takes one of this name.

    Raises:
        InputError: it is malformed, or names an unknown function.
    """
    function, keywords = subject.function, {}
    if callable(spec):
        function = spec
    elif isinstance(spec, Mapping):
        keywords = dict(spec)
    else:
        parts = _SPEC.fullmatch(spec)
        text = spec if parts is None else parts["keywords"]
        if parts is not None and parts["function"]:
            named = parts["function"].strip()
            function = (
                function_of(named)[1]
                if ":" in named
                else _function_in(subject.module, named, f"--variant {name}: {subject.name}'s file")
            )
        if text:
            keywords = parse_assignments(text, f"--variant {name}")
    if _DTYPE in keywords and _DTYPE not in inspect.signature(function).parameters:
        return Variant(name, function, keywords, canonical_dtype(str(keywords.pop(_DTYPE))))
    return Variant(name, function, keywords)
