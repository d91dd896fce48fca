"""The launcher of this process, and plans: how the next launch of a launch key is made.

A `ParameterLayout` says what a launcher reads of a function's parameters, and `Kinds` names the
types that it knows.

The kernel's own parameters are those of its PTX; only where they are what the signature
says, each as wide, does the C part call the driver itself. Everything else goes through
Triton's launcher: tuples of arguments, and kernels that are profiled.
"""

from __future__ import annotations

import functools
import subprocess
import sys
import warnings
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from typing import Any, Final, NamedTuple, Protocol, cast

import triton.language as tl
from triton import JITFunction

from asmtune.base.settings import Settings
from asmtune.core.alternatives import caller, raised_by
from asmtune.runtime.launch import plain
from asmtune.runtime.launch.slots import filled
from asmtune.triton_api.jit_functions import globals_read, parameters
from asmtune.triton_api.launching import (
    build_c_module,
    descriptor_types,
    launch_facts,
    watched_by_triton,
)

RUNTIME: Final = 0
CONSTEXPR: Final = 1
KEYED: Final = 2
COMPUTED: Final = 4
"""Modes of a parameter: its class counts, or its value; the same numbers as `native/words.c`.

A rule of `@triton.heuristics` gives the value of a computed one, whatever the launch gives.
"""

MOST_PARAMETERS: Final = 64
MOST_FUNCTIONS: Final = 16
MOST_RULES: Final = 16
"""Launches of kernels with more take the slow path; the same numbers as `native/words.c`."""


@dataclass(frozen=True)
class ParameterLayout:
    """A function's parameters as a launcher takes them.

    Attributes:
        names: names of the parameters, interned: call sites' names are the same objects.
        modes: RUNTIME or CONSTEXPR of each, plus KEYED where its value is in the key, and COMPUTED
            where a rule gives it.
        functions: functions of the key, each with the indices of its arguments.
        rules: names and functions of `@triton.heuristics`, in the order in which Triton calls them.
    """

    names: tuple[str, ...]
    modes: bytes
    functions: tuple[tuple[Callable[..., Any], tuple[int, ...]], ...] = ()
    rules: tuple[tuple[str, Callable[..., Any]], ...] = ()

    @property
    def fits(self) -> bool:
        """Return whether a launcher has room for all parameters, functions and rules."""
        parts = (self.names, self.functions, self.rules)
        limits = (MOST_PARAMETERS, MOST_FUNCTIONS, MOST_RULES)
        return all(len(part) <= most for part, most in zip(parts, limits, strict=True))


def layout_of(
    params: Sequence[Any],
    keyed: Iterable[str] = (),
    functions: Iterable[tuple[Callable[..., Any], Sequence[str]]] = (),
    rules: Iterable[tuple[str, Callable[..., Any]]] = (),
) -> ParameterLayout:
    """Make the layout of a `JITFunction`'s parameters."""
    names = tuple(sys.intern(param.name) for param in params)
    in_key, computed = set(keyed), tuple((sys.intern(name), rule) for name, rule in rules)
    modes = bytes(
        (CONSTEXPR if param.is_constexpr else RUNTIME)
        | (KEYED if param.name in in_key else 0)
        | (COMPUTED if param.name in dict(computed) else 0)
        for param in params
    )
    places = {name: index for index, name in enumerate(names)}
    key_functions = tuple(
        (function, tuple(places[name] for name in needs)) for function, needs in functions
    )
    return ParameterLayout(names, modes, key_functions, computed)


class Kinds(NamedTuple):
    """Types whose values can be part of a launch key.

    Attributes:
        tensors: exact types that are read by the descriptors below; subclasses may do
            anything, and take the slow path.
        frozen: immutable types, compared by identity.
        descriptors: exact types of the host's tensor descriptors.
        dtype, data_ptr, get_device: `torch.Tensor`'s, called without a lookup by name.
    """

    tensors: tuple[type, ...]
    frozen: tuple[type, ...]
    descriptors: tuple[type, ...]
    dtype: Any
    data_ptr: Callable[[Any], int]
    get_device: Callable[[Any], int]


def kinds() -> Kinds:
    """Return the types of PyTorch and Triton."""
    import torch

    frozen = (tl.dtype, torch.dtype, JITFunction)
    tensor = torch.Tensor
    return Kinds(
        (tensor, torch.nn.Parameter),
        frozen,
        descriptor_types(),
        *(tensor.dtype, tensor.data_ptr, tensor.get_device),
    )


_SOURCES: Final = (
    *("words.c", "table.c", "plan.c", "cuda.c", "launcher.c"),
    *("tensors.c", "calls.c", "module.c"),
)
DRIVER: Final = "libcuda.so.1"


class LaunchWarning(UserWarning):
    """A launch is slower, or of another config, than it might be."""


class Launcher(Protocol):
    """`launcher[grid](*args, **kwargs)`; see `native/launcher.c`."""

    last: Any
    rules: Any

    def __getitem__(self, grid: Any, /) -> Any: ...
    def __len__(self) -> int: ...

    def keep(self, key: Any, plan: Any, held: tuple[Any, ...], results: Any = (), /) -> None:
        """Keep the plan of a key and the rules' results, and what the key is made of."""

    def forget(self) -> None:
        """Forget every plan."""


class Backend(Protocol):
    """A module with a launcher and its plans."""

    GIVEN: Any

    def Plan(self, *facts: Any) -> Any:  # noqa: N802 - a class of the module
        """See `native/plan.c`."""

    def Launcher(self, *parts: Any) -> Launcher:  # noqa: N802 - a class of the module
        """See `native/launcher.c`."""


@functools.cache
def backend() -> Backend:
    """Return the process's backend, as ASMTUNE_LAUNCH says: "auto" or "python"."""
    if Settings.from_environment().launch == "python":
        return cast(Backend, plain)
    try:
        return native()
    except _NOT_BUILT as error:
        warnings.warn(
            f"each launch goes through Triton's own: the C part cannot be built: {error}; it needs "
            "a C compiler (CC names it) and Python's headers",
            LaunchWarning,
            stacklevel=4,
        )
        return cast(Backend, plain)


_NOT_BUILT: Final = (RuntimeError, OSError, ImportError, subprocess.CalledProcessError)
"""Errors of `native`."""


@functools.cache
def tensor_backend() -> Any | None:
    """Return the C part for prepared calls; None without it or a GPU, or if it reads no tensors."""
    import torch

    on_nvidia = torch.cuda.is_available() and torch.version.hip is None
    part = backend() if on_nvidia else plain
    return None if part is plain or not reads_tensors(part) else part


def reads_tensors(part: Any) -> bool:
    """Let the C part find PyTorch's C interface, and check that it reads a tensor right."""
    import torch

    from asmtune.triton_api.tensors import tensor_functions

    try:
        part.open_tensors("libtorch_cpu.so")
    except OSError:
        return False
    tensor = torch.empty_strided((2, 3), (5, 1), dtype=torch.float16)
    expected = (tensor.data_ptr(), tensor.get_device(), (*tensor.shape, *tensor.stride()))
    return bool(part.describe(tensor_functions().address, tensor) == expected)


@functools.cache
def native(driver: str | None = None) -> Backend:
    """Build the C part by Triton's own means; Triton's cache keeps it.

    Args:
        driver: library of the CUDA driver; None for the system's, where there is a GPU of NVIDIA's.
            Without one plans launch by Triton's own launcher.

    Raises:
        RuntimeError: there is no C compiler.
        CalledProcessError: it fails.
        ImportError: what it made cannot be loaded.
        OSError: the driver cannot be loaded.
    """
    import torch

    module = _built()
    if driver is not None or (torch.cuda.is_available() and torch.version.hip is None):
        module.open_driver(driver or DRIVER)
    return cast(Backend, module)


def _built() -> Any:
    folder = resources.files("asmtune.runtime.launch") / "native"
    source = "\n".join((folder / name).read_text() for name in _SOURCES)
    return build_c_module(source, "asmtune_launch")


_BEFORE_VALUES: Final = 4  # a relay takes the grid's sizes and the stream first

_FROZEN: Final = (bool, int, float, str, type(None), tl.dtype, JITFunction)
"""Globals that are watched by identity."""


@dataclass(frozen=True)
class TritonLaunch:
    """A launch that Triton made of a `JITFunction`: its `CompiledKernel`, and what it was given.

    `given` holds arguments by name, and `chosen` constexprs and options of the config.
    """

    function: Any
    compiled: Any
    given: Mapping[str, Any]
    chosen: Mapping[str, Any]
    config: Any


def plan_of(backend: Backend, launched: TritonLaunch, known: Kinds) -> Any | None:
    """Make the plan of a launch; None where Triton must see each: hooks, instrumentation.

    So it must where it launches itself and descriptors are given.
    """
    guards, facts = _guards(backend, launched.function), launch_facts(launched.compiled)
    if guards is None or facts is None:
        return None
    values = tuple(
        backend.GIVEN if p.name in launched.given else launched.chosen.get(p.name, p.default)
        for p in parameters(launched.function)
    )
    how = (launched.function, launched.given, facts, values, known.tensors, known.descriptors)
    slots, described = filled(*how) or ((), ())
    if not slots and any(type(value) in known.descriptors for value in launched.given.values()):
        return None  # Triton's launcher does not look whether the kernel is a descriptor's
    return backend.Plan(
        facts.function if slots else 0,
        facts.threads,
        facts.shared,
        slots,
        values,
        launched.compiled,
        launched.config,
        guards,
        facts.relay,
        facts.for_relay,
        launched.config.pre_hook,
        dict(launched.chosen),
        facts.scratch,
        facts.attributes,
        described,
    )


def plan_of_alternative(
    backend: Backend,
    function: Any,
    alternative: Callable[..., Any],
    given: Collection[str],
    config: Any,
    untuned: Any = None,
) -> Any:
    """Make the plan of launches that call an alternative in a config's place: Triton has no part.

    `given` names the arguments of a launch. `untuned` is the decorated kernel, where nothing has
    timed the alternative: a launch at which it raises is made again, without a plan.
    """
    chosen, params = config.all_kwargs(), parameters(function)
    values = tuple(
        backend.GIVEN if p.name in given else chosen.get(p.name, p.default) for p in params
    )
    names = [p.name for p in params]
    call = served = caller(alternative, names, given, skip=_BEFORE_VALUES)

    def served_or_again(*values: Any) -> None:
        if raised_by(lambda: served(*values)) is not None:  # it need not take each launch
            untuned.cache.on_change()
            launch = functools.partial(untuned.run, grid=values[: _BEFORE_VALUES - 1])
            caller(launch, names, given, skip=_BEFORE_VALUES)(*values)

    if untuned is not None:
        call = served_or_again

    def relay(*values: Any) -> None:
        if (observer := plain.observer) is None:  # read once: another thread may end its trace
            call(*values)
        else:  # what the function does is no part of what a prepared call must do again
            observer.unheard(call, *values)

    return backend.Plan(0, 0, 0, (), values, None, config, (), relay, (), None, chosen)


def _guards(backend: Backend, function: Any) -> tuple[tuple[dict[str, Any], str, Any], ...] | None:
    """List the globals and knobs that Triton checks at every launch, with their values now."""
    watched = watched_by_triton(function)
    if watched is None:
        return None
    for owner, name in globals_read(function):
        value = owner.get(name)
        value = value.value if isinstance(value, tl.constexpr) else value
        if not isinstance(value, _FROZEN):
            return None  # a list, say: only a comparison as a whole would see a change
    return tuple((owner, name, owner.get(name, backend.GIVEN)) for owner, name in watched)
