"""`Config`: one point of a space, with the attributes of `triton.Config`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from numbers import Integral, Real
from typing import Any, Final

from asmtune.base.errors import SpaceError

OPTION_DEFAULTS: Final[Mapping[str, int | None]] = {
    "num_warps": 4,
    "num_stages": 3,
    "num_ctas": 1,
    "maxnreg": None,
}
"""Triton's compile options that are axes, with Triton's own defaults."""

OPTION_AXES: Final = tuple(OPTION_DEFAULTS)

AMD_OPTIONS: Final[Mapping[str, int]] = {"waves_per_eu": 0, "matrix_instr_nonkdim": 0, "kpack": 1}
"""Compile options of Triton's AMD backend that are axes, with its defaults.

A config has them among its `kwargs`, as a `triton.Config` does; a kernel's own parameter of such a
name is given the value as well.
"""

ALTERNATIVE: Final = "@alternative"
"""Name of `Config.alternative` among a config's values: none that a parameter can have."""

_POWERS: Final = "a power of two from 1"
_ALLOWED: Final[Mapping[str, tuple[str, int]]] = {
    "num_warps": (_POWERS, 64),  # a rule knows the limit of each target
    "num_stages": ("a whole number from 1", 100),
    "num_ctas": (_POWERS, 16),  # programs of the largest cluster that NVIDIA GPUs have
    "maxnreg": ("None or a whole number from 1", 65536),  # registers of a multiprocessor
}
_AMD_ALLOWED: Final[Mapping[str, tuple[int, ...]]] = {
    "waves_per_eu": tuple(range(9)),  # 0 leaves it to the compiler; a SIMD has 8 slots
    "matrix_instr_nonkdim": (0, 4, 16, 32),  # 0 leaves it to the compiler
    "kpack": (1, 2),
}


def check_option(name: str, value: Any, where: str) -> None:
    """Check the value that an axis gives one of the options of Triton's compiler.

    Raises:
        SpaceError: Triton takes no such value; begins with `where`, says what it takes.
    """
    if name in _AMD_ALLOWED:
        allowed = _AMD_ALLOWED[name]
        fits, wanted = (
            type(value) is int and value in allowed,
            f"one of {', '.join(map(str, allowed))}",
        )
    else:
        form, most = _ALLOWED[name]
        is_count = type(value) is int and 0 < value <= most
        fits = is_count and not (form is _POWERS and value & (value - 1))
        fits, wanted = fits or (value is None and name == "maxnreg"), f"{form} to {most}"
    if not fits:
        raise SpaceError(f"{where} {value!r}: expected {wanted}")


def foreign_option(config: Config, backend: str, parameters: Iterable[str] = ()) -> str | None:
    """Return which option of a config another vendor's compiler takes; None if all fit.

    A name among the kernel's `parameters` is the kernel's own.
    """
    if backend == "hip":
        if config.maxnreg is None:
            return None
        return "maxnreg is an option of NVIDIA's compiler; AMD's takes waves_per_eu"
    own = next((n for n in AMD_OPTIONS if n in config.kwargs and n not in set(parameters)), None)
    return None if own is None else f"{own} is an option of AMD's compiler; leave the axis out"


def check_types(config: Config) -> None:
    """Check that options of a config are whole numbers, or a `maxnreg` of None.

    Other values are left to Triton: a config of a list that does not compile costs itself alone.

    Raises:
        SpaceError: one is something else.
    """
    for name in OPTION_AXES:
        value = getattr(config, name)
        if type(value) is not int and (name != "maxnreg" or value is not None):
            raise SpaceError(f"config: {name} is {value!r}: expected a whole number")


class Config:
    """Values for a kernel's constexprs and for Triton's compile options.

    It has the attributes and the constructor of `triton.Config`, so either can replace the other.
    But it is hashable whatever the order of its keywords, and importing it loads nothing.

    Args:
        kwargs: constexpr parameters by name.
        num_warps: warps per program; a power of two.
        num_stages: depth of software pipelining.
        num_ctas: programs per cluster (sm_90 and newer).
        maxnreg: cap on registers per thread, or None.
        pre_hook: called with all arguments by name before each launch.
        ir_override: file of hand-edited IR (.ttir, .ttgir, .llir or .ptx) to use instead of
            the compiler's own, from that stage on.

    Attributes:
        alternative: name of the function that is called in the config's place, as a record's
            winner has it; None for a config that is launched.

    Raises:
        SpaceError: an option has a value that Triton does not take, or `kwargs` is no mapping.
    """

    # Triton's autotuner writes `vars(config)` to disk: it must hold Triton's own
    # attributes and no more.
    __slots__ = ("__dict__", "_hash", "alternative")

    def __init__(
        self,
        kwargs: Mapping[str, Any],
        num_warps: int = 4,
        num_stages: int = 3,
        num_ctas: int = 1,
        maxnreg: int | None = None,
        pre_hook: Callable[..., Any] | None = None,
        ir_override: str | None = None,
    ) -> None:
        self.kwargs = _checked_kwargs(kwargs)
        self.num_warps = num_warps
        self.num_stages = num_stages
        self.num_ctas = num_ctas
        self.maxnreg = maxnreg
        check_types(self)
        self.pre_hook = pre_hook
        # Triton takes it as a keyword of the launch, whichever way it gets there.
        self.ir_override = self.kwargs.pop("ir_override", None) or ir_override
        self.alternative: str | None = None
        self._hash: int | None = None

    @classmethod
    def of(cls, value: Any) -> Config:
        """Convert a `Config`, a `triton.Config` or a flat mapping to a `Config`."""
        if isinstance(value, Config):
            return value
        if isinstance(value, Mapping):
            return cls.from_dict(value)
        try:
            values = {name: getattr(value, name) for name in ("kwargs", *OPTION_AXES, "pre_hook")}
            # Where the constexprs hold an option as well, Triton launches with that value.
            kwargs = _checked_mapping(values["kwargs"])
            among = {name: kwargs.pop(name) for name in OPTION_AXES if name in kwargs}
            values |= {name: among[name] for name in among if values[name] is None}
            values["kwargs"] = kwargs
            return cls(**values, ir_override=getattr(value, "ir_override", None))
        except AttributeError as error:
            raise SpaceError(
                f"{value!r} is not a config: expected asmtune.Config, triton.Config or a mapping"
            ) from error

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Config:
        """Read `{"BLOCK_M": 64, ..., "num_warps": 4}`; the inverse of `values`."""
        kwargs = dict(values)
        config = cls.__new__(cls)
        config.num_warps = kwargs.pop("num_warps", 4)
        config.num_stages = kwargs.pop("num_stages", 3)
        config.num_ctas = kwargs.pop("num_ctas", 1)
        config.maxnreg = kwargs.pop("maxnreg", None)
        config.ir_override = kwargs.pop("ir_override", None)
        config.alternative = kwargs.pop(ALTERNATIVE, None)
        config.kwargs = kwargs
        config.pre_hook = config._hash = None
        return config

    def to_dict(self) -> dict[str, Any]:
        """Return `values`, with the text of those that JSON has no form for.

        Such as a dtype or a tuple: `Space.matching` finds the config with the value itself.
        """
        return {name: storable(value) for name, value in self.values().items()}

    def stored_kwargs(self) -> dict[str, Any]:
        """Return the constexprs as `to_dict` has them."""
        return {name: storable(value) for name, value in self.kwargs.items()}

    def values(self) -> dict[str, Any]:
        """Return all values in one flat mapping, without options at None and without one CTA.

        It holds the name of the `ir_override` file without its folder, which differs by machine.
        """
        values = {**self.kwargs, "num_warps": self.num_warps, "num_stages": self.num_stages}
        if self.num_ctas != 1:
            values["num_ctas"] = self.num_ctas
        if self.maxnreg is not None:
            values["maxnreg"] = self.maxnreg
        if self.ir_override is not None:
            values["ir_override"] = self.ir_override.rpartition("/")[2]
        if self.alternative is not None:
            values[ALTERNATIVE] = self.alternative
        return values

    def all_kwargs(self) -> dict[str, Any]:
        """Return the keywords for Triton's launcher, as `triton.Config.all_kwargs` does."""
        values = {
            **self.kwargs,
            "num_warps": self.num_warps,
            "num_ctas": self.num_ctas,
            "num_stages": self.num_stages,
        }
        if self.maxnreg is not None:
            values["maxnreg"] = self.maxnreg
        if self.ir_override is not None:
            values["ir_override"] = self.ir_override
        return values

    @property
    def plain(self) -> Config:
        """Return the config itself, without the alternative that is called in its place."""
        return self if self.alternative is None else self.with_alternative(None)

    def with_alternative(self, name: str | None) -> Config:
        """Return the config, its hook included, with an alternative in its place."""
        config = Config(**vars(self))
        config.alternative = name
        return config

    def with_values(self, values: Mapping[str, Any]) -> Config:
        """Return the config, its hook included, with other constexprs or options."""
        options = {name: value for name, value in values.items() if name in OPTION_DEFAULTS}
        kwargs = {n: value for n, value in values.items() if n not in options}
        return Config(**{**vars(self), "kwargs": {**self.kwargs, **kwargs}, **options})

    def with_cap(self, maxnreg: int | None) -> Config:
        """Return the config, its hook included, with another `maxnreg`, to be launched."""
        return Config(**{**vars(self), "maxnreg": maxnreg})

    def with_override(self, ir_override: str | None) -> Config:
        """Return the config, its hook included, with another `ir_override`."""
        return Config(**{**vars(self), "ir_override": ir_override})

    def _identity(self) -> tuple[Any, ...]:
        kwargs = tuple(sorted(self.kwargs.items()))
        options = (self.num_warps, self.num_stages, self.num_ctas, self.maxnreg)
        return (kwargs, options, self.pre_hook, self.ir_override, self.alternative)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Config) and self._identity() == other._identity()

    def __hash__(self) -> int:
        if self._hash is None:
            self._hash = hash(self._identity())
        return self._hash

    def __reduce__(self) -> tuple[Any, ...]:
        # Without the hash, which differs between processes.
        options = (self.num_warps, self.num_stages, self.num_ctas, self.maxnreg)
        arguments = (self.kwargs, *options, self.pre_hook, self.ir_override)
        return (type(self), arguments, (None, {"alternative": self.alternative}))

    def __str__(self) -> str:
        if self.alternative is not None:
            return f"{self.alternative} in place of {self.plain}"
        return " ".join(f"{name}={value}" for name, value in self.to_dict().items())

    def __repr__(self) -> str:
        return f"Config({self})"


def storable(value: Any) -> Any:
    """Return a value, or its text if JSON has no form for it and other processes have the same."""
    if value is None or isinstance(value, int | float | str):
        return value
    if isinstance(value, Real):  # NumPy's
        return int(value) if isinstance(value, Integral) else float(value)
    text = str(value)
    return value if " at 0x" in text else text


def _checked_mapping(kwargs: Any) -> dict[str, Any]:
    if not isinstance(kwargs, Mapping) or not all(isinstance(name, str) for name in kwargs):
        raise SpaceError(f"config: {kwargs!r} is no mapping of constexprs by name")
    return dict(kwargs)


def _checked_kwargs(kwargs: Any) -> dict[str, Any]:
    checked = _checked_mapping(kwargs)
    twice = next((name for name in kwargs if name in OPTION_DEFAULTS), None)
    if twice is not None:
        raise SpaceError(f"config: give {twice} as {twice}=, beside the constexprs")
    return checked


def varying(configs: Sequence[Config]) -> list[str]:
    """Return the axes on which the configs differ; all axes if there is one config."""
    values: dict[str, set[Any]] = {}
    for config in configs:
        for name, value in config.to_dict().items():
            values.setdefault(name, set()).add(value)
    shared = set(values).intersection(*(config.to_dict() for config in configs))
    differing = [name for name, seen in values.items() if len(seen) > 1 or name not in shared]
    return differing if len(configs) > 1 else list(values)
