"""Functions, inputs and references of an accuracy run.

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
from asmtune.core.kernel_module import KernelModule, Shape, from_python_module, import_module
from asmtune.core.space.space import Space
from asmtune.core.user_modules import user_code
from asmtune.triton_api.autotuners import without_autotuner

Outputs = dict[str, Any]
"""Tensors by name; a single one has the name ""."""

_SPEC: Final = re.compile(r"(?P<function>[^()=,]*)(?:\((?P<keywords>.+)\))?")


@dataclass(frozen=True)
class Variant:
    """A function with further keywords; `dtype` is that of the inputs, None for the run's."""

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

    kernel: KernelModule
    module: ModuleType
    function: Callable[..., Any]
    shape: Shape
    dtype: str
    is_launch: bool = False

    @property
    def name(self) -> str:
        """Return the kernel's or function's name."""
        return self.kernel.name

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
            make = self.kernel.problem
            what = f"problem of {self.name}"
            return dict(required(what, lambda: make(self.shape, dtype, device)).arguments)
        if not hasattr(self.module, "inputs"):
            raise InputError(
                f"{self.name}: its file defines no inputs(shape, dtype, device), which makes its "
                "arguments by name; kernels/tiled_matmul.py shows one"
            )
        own = self.module.inputs
        with user_code(self.module):
            return required(f"inputs of {self.name}", lambda: {**own(self.shape, dtype, device)})

    def outputs(self, variant: Variant, inputs: Mapping[str, Any]) -> Outputs:
        """Call a variant.

        Raises:
            ProblemError: it raised, or returned no tensors.
        """
        arguments = {**inputs, **variant.keywords}
        return self._called(f"variant {variant.name}", lambda: variant.function(**arguments))

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
            return self._called("reference", lambda: self.module.reference(inputs))
        function = getattr(self.module, "baseline", variant.function)
        wide = {**_widened(inputs, against), **accepted(function, variant.keywords)}
        return self._called("reference", lambda: function(**wide))

    def _called(self, what: str, call: Callable[[], Any]) -> Outputs:
        import torch

        where = f"{self.name}, {what}"
        with user_code(self.module), torch.no_grad():
            result = required(where, call)
        if isinstance(result, torch.Tensor):
            return {"": result}
        if isinstance(result, list | tuple):
            own = [name.removesuffix("_ptr") for name in getattr(self.module, "OUTPUTS", ())]
            names = own if len(own) == len(result) else map(str, range(len(result)))
            result = dict(zip(names, result, strict=True))
        tensors = isinstance(result, Mapping) and all(
            isinstance(value, torch.Tensor) for value in result.values()
        )
        if not result or not tensors:
            raise ProblemError(f"{where}: expected a tensor, or several, as result")
        return dict(result)


def accepted(function: Callable[..., Any], keywords: Mapping[str, Any]) -> dict[str, Any]:
    """Return those keywords that a function's signature has."""
    takes = inspect.signature(function).parameters
    takes_any = any(one.kind is one.VAR_KEYWORD for one in takes.values())
    return {name: value for name, value in keywords.items() if takes_any or name in takes}


def _widened(inputs: Mapping[str, Any], against: str) -> dict[str, Any]:
    import torch

    def wide(value: Any) -> Any:
        if not isinstance(value, torch.Tensor):
            return value
        kinds = {"fp64": (torch.float64, torch.complex128), "fp32": (torch.float32, torch.cfloat)}
        if value.is_floating_point() or value.is_complex():
            return value.to(kinds[against][value.is_complex()], copy=True)
        return value

    return {name: wide(value) for name, value in inputs.items()}


def load_subject(kernel: str, shape: Shape | None, dtype: str | None) -> AccuracySubject:
    """Load a kernel module by name or file, or a function as `file.py:function`.

    Raises:
        InputError: it is unknown, or shape or dtype do not suit it.
    """
    is_launch = False
    if ":" in kernel:
        module, function = function_of(kernel)
        loaded = _of_function(module, kernel.rpartition(":")[2], dtype or "fp32")
    else:
        module = import_module(kernel)
        loaded = from_python_module(module)
        function = getattr(module, loaded.name, None)
        is_launch = not (callable(function) and hasattr(module, "inputs"))
    if shape is None:
        shape = loaded.shapes[0] if loaded.shapes else {}
    sizes, element = loaded.check_shape(shape), loaded.check_dtype(dtype)
    if is_launch:
        function = _launch(loaded, module, sizes, element)
    return AccuracySubject(loaded, module, function, sizes, element, is_launch)


def _of_function(module: ModuleType, name: str, dtype: str) -> KernelModule:
    """Describe a plain function by the shapes and dtypes of its file; without, it takes any."""
    shapes, dtypes = getattr(module, "SHAPES", ()), getattr(module, "DTYPES", ()) or (dtype,)
    names, make = tuple(map(canonical_dtype, dtypes)), getattr(module, "inputs", None)
    return KernelModule(name, None, lambda: Space({}), make, tuple(shapes), names)  # type: ignore[arg-type]


def _launch(
    loaded: KernelModule, module: ModuleType, sizes: Shape, element: str
) -> Callable[..., Outputs]:
    def launch(**arguments: Any) -> Outputs:
        problem = loaded.problem(sizes, element, "meta")
        config = getattr(module, "DEFAULT", None) or loaded.space().default
        if config is None or not hasattr(module, "OUTPUTS"):
            raise ProblemError(f"kernel module {loaded.name} defines no DEFAULT, or no OUTPUTS")
        # Keywords of a variant that are no arguments replace values of the config.
        without_autotuner(module.kernel)[problem.grid](**{**config.all_kwargs(), **arguments})
        return {name.removesuffix("_ptr"): arguments[name] for name in module.OUTPUTS}

    return launch


def function_of(reference: str, module: ModuleType | None = None) -> tuple[ModuleType, Any]:
    """Load the module and the function of `file.py:function`, or of a name in `module`.

    Raises:
        ProblemError: the module or the function is missing.
    """
    where, _, name = reference.rpartition(":")
    if module is None or where:
        module = import_module(where)
    function = getattr(module, name, None)
    if not callable(function):
        hint = did_you_mean(name, [one for one, value in vars(module).items() if callable(value)])
        raise ProblemError(f"{where or module.__file__} defines no function {name!r}{hint}")
    return module, function


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
        if parts is not None and (named := parts["function"].strip()):
            function = function_of(named, subject.module)[1]
        text = spec if parts is None else parts["keywords"]
        keywords = parse_assignments(text, f"--variant {name}") if text else {}
    dtype = None
    if "dtype" in keywords and "dtype" not in inspect.signature(function).parameters:
        dtype = canonical_dtype(str(keywords.pop("dtype")))
    return Variant(name, function, keywords, dtype)
