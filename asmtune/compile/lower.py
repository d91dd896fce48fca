"""The front end: lowers a problem and a config to a self-contained request.

It walks a kernel's Python source in the user's own process: 11-15 ms for a mid-sized GEMM, once for
all configs that share their constexprs.
"""

from __future__ import annotations

import inspect
import numbers
import re
import sys
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Any, Final

from asmtune.base.deadline import deadline
from asmtune.base.errors import InputError, ProblemError
from asmtune.base.fingerprint import canonical, digest, version_of
from asmtune.base.text import shortened
from asmtune.compile.source import other_values, source_digest
from asmtune.core.config import AMD_OPTIONS, OPTION_AXES, Config, foreign_option
from asmtune.core.dtypes import dtype_of
from asmtune.core.failures import guarded, of_one_config
from asmtune.core.hardware.model import Target
from asmtune.core.ir_overrides import Override
from asmtune.core.problem import Problem
from asmtune.core.records.artifacts import Failure
from asmtune.triton_api.jit_functions import is_gluon, jit_function, python_function
from asmtune.triton_api.user_state import within

if TYPE_CHECKING:
    from asmtune.compile.artifacts import StoredTtir
    from asmtune.triton_api.compiler import Specialised, Toolchain


PRE_HOOK_LOCK: Final = threading.RLock()
"""Held while a config's `pre_hook` runs to specialise a launch: hooks write to tensors and
descriptors that all configs share. Code that needs these unchanged holds it meanwhile."""


@dataclass(frozen=True)
class LowerRequest:
    """Holds everything the back end needs: no user code, no GPU.

    Attributes:
        ttir: the module's text; of a Gluon kernel TTGIR, before any pass.
        options: the backend's options as JSON values.
        machine: Triton's (backend, arch, warp size).
        environment: variables that the compiler reads; None for one that is not set.
        compiler: identity of Triton and of its tools.
        override: a hand-edited file in the place of a stage's output.
        gluon: whether the kernel is written in Gluon.
    """

    ttir: str
    options: Mapping[str, Any]
    machine: tuple[str, int | str, int]
    environment: Mapping[str, str | None]
    compiler: str
    override: Override | None = None
    gluon: bool = False

    @cached_property
    def digest(self) -> str:
        """Return the identity of the artifact."""
        variables = {name: value for name, value in self.environment.items() if value is not None}
        rest = canonical([self.options, self.machine, variables, self.compiler])
        edited = () if self.override is None else (self.override.stage, self.override.text)
        return digest(_text_digest(self.ttir), rest, *edited)

    @property
    def has_dot(self) -> bool:
        """Return whether Triton may pipeline it; if not, `num_stages` changes no plain loop."""
        return "tt.dot" in self.ttir and not self.gluon


@lru_cache(maxsize=64)
def _text_digest(ttir: str) -> str:
    """Cache the digest: one text of 30 kB serves every config of a tile."""
    return digest(ttir)


_GIVES_A_VALUE: Final = re.compile(r"tt\.func public @.*\) -> ").search
_NO_TTIR: Final = "ir_override={}: a Gluon kernel has no TTIR; give .ttgir, .llir or .ptx"
_NO_KERNEL: Final = "it returns a value, which only what a kernel calls may: name the kernel itself"


_CONFIG_OPTIONS: Final = frozenset({*OPTION_AXES, *AMD_OPTIONS})
"""Options of the backend that configs of one launch may differ in."""

_ADDRESS: Final = " at 0x"
"""Part of the text of a value that only this process understands."""


class Lowering:
    """Makes requests for the configs of one problem on one target.

    Args:
        timeout_s: seconds the front end may take for one config; an unrolled
            `static_range` can take minutes.
        stored: TTIR that other problems and processes made.
    """

    def __init__(
        self,
        problem: Problem,
        target: Target,
        timeout_s: float,
        stored: StoredTtir | None = None,
    ) -> None:
        from asmtune.triton_api.caches import compiler_identity, environment
        from asmtune.triton_api.compiler import Toolchain

        self.problem = problem
        self.target = target
        self.machine = target.machine
        self.toolchain = Toolchain(*self.machine)
        self._function = jit_function(problem.kernel)
        self._gluon = is_gluon(problem.kernel)
        self._timeout_s = timeout_s
        self.environment = environment()
        self._compiler = compiler_identity()
        self._ttir: dict[tuple[str, str], str | Failure] = {}
        self._depends: dict[str, frozenset[str]] = {}
        self._stored = stored
        self._lock = threading.RLock()

    def request(self, config: Config) -> LowerRequest | Failure:
        """Return the request for one config, or why the front end refuses it.

        Any thread may call this; another waits meanwhile, and finds what was lowered.
        """
        with self._lock:
            return self._request(config)

    def _request(self, config: Config) -> LowerRequest | Failure:
        from asmtune.triton_api.compiler import plain_options

        if (foreign := self._foreign_option(config)) is not None:
            return Failure("options", "options", foreign)
        override = None
        if config.ir_override is not None:
            try:
                override = Override.read(config.ir_override)
            except InputError as error:
                return Failure("lower", "override", str(error))
            if self._gluon and override.stage == "ttir":
                return Failure("lower", "override", _NO_TTIR.format(override.name))
        specialised = self.specialise(config)
        if isinstance(specialised, Failure):
            return specialised
        # The file's content is sent; its path does not matter to the compiler.
        options = {**plain_options(specialised.options), "ir_override": None}
        ttir = self._lower(specialised, options)
        if isinstance(ttir, Failure):
            return ttir
        return LowerRequest(
            ttir, options, self.machine, self.environment, self._compiler, override, self._gluon
        )

    def _foreign_option(self, config: Config) -> str | None:
        return foreign_option(config, self.target.backend, self._function.arg_names)

    @property
    def options_read(self) -> frozenset[str]:
        """Launch options that some TTIR so far was made from."""
        return frozenset().union(*self._depends.values())

    def specialise(self, config: Config) -> Specialised | Failure:
        """Specialise the kernel's source as Triton would for a launch."""
        values = of_one_config("options", "arguments", lambda: self.problem.bind(config))
        if isinstance(values, Failure):
            return values

        def bound() -> Specialised:
            if config.pre_hook is None:
                return self._specialised(values)
            with PRE_HOOK_LOCK:
                # Triton runs it before each launch; descriptors get their block shape there.
                within(config.pre_hook)(values)
                return self._specialised(values)

        return guarded("options", bound)

    def _specialised(self, values: Mapping[str, Any]) -> Specialised:
        try:
            return self.toolchain.specialise(self._function, values)
        except (TypeError, KeyError) as error:
            refused = refusal(self.toolchain, self._function, values)
            name = self._function.__name__
            raise ProblemError(f"kernel {name}: {refused or error}") from error

    def _lower(self, specialised: Specialised, options: Mapping[str, Any]) -> str | Failure:
        source = specialised.key
        axes = self._depends.get(source, frozenset())
        key = (source, canonical({name: options.get(name) for name in axes}))
        if source not in self._depends or key not in self._ttir:
            ttir = self._ttir_of(specialised, options)
            axes |= specialised.options_read & _CONFIG_OPTIONS
            self._depends[source] = axes
            key = (source, canonical({name: options.get(name) for name in axes}))
            self._ttir[key] = ttir
        return self._ttir[key]

    def _ttir_of(self, specialised: Specialised, options: Mapping[str, Any]) -> str | Failure:
        """Return stored TTIR, or make it; store it if no config's options were read for it."""
        key = None if self._stored is None else self._source_key(specialised, options)
        if self._stored is None or key is None:
            return self._front_end(specialised)
        ttir: str | Failure | None = self._stored.get(key)
        if ttir is None:
            ttir = self._front_end(specialised)
            if isinstance(ttir, str) and not specialised.options_read & _CONFIG_OPTIONS:
                self._stored.put(key, ttir)
        return ttir

    def _source_key(self, specialised: Specialised, options: Mapping[str, Any]) -> str | None:
        """Return a digest of all that TTIR is made from, but for configs' options; else None."""
        from asmtune.triton_api.caches import front_end_identity

        code = guarded("lower", lambda: f"{specialised.identity} {self._source}")
        if isinstance(code, Failure) or _ADDRESS in specialised.key or _ADDRESS in code:
            return None
        rest = {name: value for name, value in options.items() if name not in _CONFIG_OPTIONS}
        variables = sorted((n, v) for n, v in self.environment.items() if v is not None)
        made_by = [self.machine, variables, *front_end_identity(), version_of("asmtune")]
        return digest(code, specialised.key, canonical([rest, made_by]))

    @cached_property
    def _source(self) -> str:
        """Return the kernel's file, which TTIR names, and its source with the current globals."""
        kernel = self._function
        own = [
            inspect.getfile(python_function(kernel)),
            source_digest(kernel),
            other_values(kernel),
        ]
        return canonical(own)

    def _front_end(self, specialised: Specialised) -> str | Failure:
        def limited() -> str:
            with deadline(self._timeout_s, _FrontEndTimeoutError):
                return self.toolchain.front_end(specialised)[0]

        ttir = guarded("lower", limited)
        if isinstance(ttir, str) and _GIVES_A_VALUE(ttir):
            return Failure("lower", "kernel", _NO_KERNEL)
        return ttir


class _FrontEndTimeoutError(TimeoutError):
    """Stops the front end's thread when its time is up."""

    def __repr__(self) -> str:  # Triton shows the repr of what its front end raised
        return "the kernel's Python source took too long to unroll; use range, not static_range"

    __str__ = __repr__


def refusal(toolchain: Toolchain, function: Any, values: Mapping[str, Any]) -> str | None:
    """Return which argument Triton refuses, and what to pass instead; None if it takes each.

    Triton's own binder is asked: its versions differ.
    """
    name = toolchain.refused_argument(function, values)
    return name and f"argument {name} is {_shown(values[name])}: {_advice(name, values[name])}"


def foreign_value(values: Mapping[str, Any]) -> str | None:
    """Return which argument is a number or dtype of another library, and what to pass instead.

    As a tl.constexpr it reaches the kernel's source as it is, where most uses of it fail.
    """
    numpy: Any = sys.modules.get("numpy")
    for name, value in values.items():
        if _is_dtype(value) or (numpy is not None and isinstance(value, numpy.generic)):
            return f"argument {name} is {_shown(value)}: {_advice(name, value)}"
    return None


def _is_dtype(value: Any) -> bool:
    """Return whether a value is a dtype of NumPy's or PyTorch's, which Triton does not know."""
    numpy, torch = sys.modules.get("numpy"), sys.modules.get("torch")
    if numpy is not None and isinstance(value, type) and issubclass(value, numpy.generic):
        return True
    kinds = [kind for kind in (getattr(module, "dtype", None) for module in (numpy, torch)) if kind]
    return isinstance(value, tuple(kinds))


def _shown(value: Any) -> str:
    if hasattr(value, "data_ptr"):
        return f"a tensor of {dtype_of(value)}, a dtype that Triton lacks"
    kind = type(value)
    return f"{shortened(ascii(value))} ({kind.__module__}.{kind.__qualname__})"


def _advice(name: str, value: Any) -> str:
    if hasattr(value, "data_ptr"):
        is_complex = getattr(value.dtype, "is_complex", False)
        view = f"torch.view_as_real({name})" if is_complex else f"{name}.view(torch.uint8)"
        return f"pass a view of a dtype that it has, such as {view}"
    if _is_dtype(value):
        return "pass a dtype of Triton's, such as tl.float16, to a tl.constexpr"
    if getattr(value, "shape", ()):
        return f"pass a tensor, such as torch.from_numpy({name}) on the GPU"
    number = "bool" if getattr(getattr(value, "dtype", None), "kind", "") == "b" else "float"
    if hasattr(value, "__index__") and number != "bool":
        number = "int"
    if hasattr(value, "dtype") or isinstance(value, numbers.Real):
        return f"pass {number}({name})"
    return "pass a number, a tensor, None or a tuple of them; a tl.constexpr takes other values"
