"""Choices of a program: the checked arguments of `@asm_autotune`, and deterministic choice.

While that is switched on, the same key gets the same config and no launch times any: the stored
config, else the shipped one, else the model's pick (`tuning.deterministic`).
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, Literal, get_args
from weakref import WeakKeyDictionary

from asmtune.base.errors import USER_CODE_ERRORS, ArgumentTypeError, InputError
from asmtune.base.settings import deterministic_by_environment
from asmtune.base.text import shortened, user_stacklevel
from asmtune.core.config import Config
from asmtune.core.keys.parts import KeySource
from asmtune.core.space.space import Space
from asmtune.triton_api.jit_functions import is_kernel
from asmtune.triton_api.user_state import are_deterministic_algorithms_enabled, inside


class PruningWarning(UserWarning):
    """A config is not tried, since the user's model of its time raised."""


_KNOWN = ("early_config_prune", "perf_model", "top_k")


@dataclass(frozen=True)
class Pruning:
    """The functions of `prune_configs_by`, with the meaning that they have in `triton.autotune`.

    Attributes:
        early_config_prune: takes configs, arguments by name as given by position, and those
            given by name as keywords; gives the configs to keep, one at least.
        perf_model: takes all arguments and a config's values by name; gives its expected time.
        top_k: number of configs that the model keeps, or a share up to 1.0.
    """

    early_config_prune: Callable[..., Sequence[Any]] | None = None
    perf_model: Callable[..., Any] | None = None
    top_k: int | float = 1.0

    @classmethod
    def of(cls, given: Mapping[str, Any] | None) -> Pruning | None:
        """Check a `prune_configs_by=` and make its pruning; None if nothing is given.

        Raises:
            InputError: it is no mapping, or has another name than those that Triton knows.
        """
        if not given:
            return None
        if not isinstance(given, Mapping) or any(name not in _KNOWN for name in given):
            raise ArgumentTypeError(
                f"asm_autotune: prune_configs_by={shortened(repr(given))}: "
                f"expected a dict of {', '.join(_KNOWN)}"
            )
        for name in _KNOWN[:2]:
            function = given.get(name)
            if function is not None and (not callable(function) or is_kernel(function)):
                raise ArgumentTypeError(
                    f"asm_autotune: prune_configs_by {name}={shortened(repr(function))}: "
                    "expected a function"
                )
        top_k = given.get("top_k", 1.0)
        if top_k is None and given.get("perf_model") is None:
            top_k = 1.0  # packages write None for both, and Triton reads neither
        if isinstance(top_k, bool) or not isinstance(top_k, int | float) or top_k <= 0:
            raise InputError(
                f"asm_autotune: prune_configs_by top_k={top_k!r}: "
                "expected a number of configs, or a share up to 1.0"
            )
        if isinstance(top_k, float) and top_k > 1.0:
            raise InputError(
                f"asm_autotune: prune_configs_by top_k={top_k!r}: a share is up to 1.0"
            )
        return cls(given.get("early_config_prune"), given.get("perf_model"), top_k)

    def apply(
        self, configs: Sequence[Any], positional: Mapping[str, Any], named: Mapping[str, Any]
    ) -> list[Any]:
        """Return the configs to search for one launch.

        Raises:
            InputError: none is left.
        """
        remaining = list(configs)
        if self.early_config_prune is not None:
            with inside():
                kept = self.early_config_prune(remaining, positional, **named)
            if not isinstance(kept, Iterable):
                raise ArgumentTypeError(
                    f"asm_autotune: early_config_prune returned {shortened(repr(kept))}: expected "
                    "a list of the configs to keep; is a return missing?"
                )
            remaining = list(kept)
            if not remaining:
                raise InputError(
                    "asm_autotune: early_config_prune kept none of "
                    f"{len(configs)} configs; it must return at least one"
                )
        model, most = self.perf_model, self.top_k
        if isinstance(most, float):  # one at least, as in the newest Triton
            most = max(1, int(len(remaining) * most))
        if model is None or len(remaining) <= most:
            return remaining
        with inside():
            expected = _expected(model, remaining, positional, named)
        return [remaining[index] for index in sorted(expected, key=expected.__getitem__)[:most]]


def _expected(
    model: Callable[..., Any],
    configs: Sequence[Any],
    positional: Mapping[str, Any],
    named: Mapping[str, Any],
) -> dict[int, Any]:
    """Return the model's times by place; warn of configs at which it raises, which are left out.

    Raises:
        InputError: it raises at each.
    """
    times: dict[int, Any] = {}
    errors: list[tuple[Any, Exception]] = []
    for index, config in enumerate(configs):
        try:
            times[index] = float(model(**positional, **named, **config.all_kwargs()))
        except USER_CODE_ERRORS as error:
            errors.append((config, error))
    if errors:
        config, first = errors[0]
        text = (
            f"asm_autotune: perf_model failed at {len(errors)} of {len(configs)} configs, "
            f"first at {Config.of(config)}: {type(first).__name__}: {first}"
        )
        if not times:
            raise InputError(text) from first
        warnings.warn(f"{text}; they are not tried", PruningWarning, stacklevel=user_stacklevel())
    return times


Arguments = Mapping[str, Any]
SpaceSource = Space | Mapping[str, Iterable[Any]] | Sequence[Any] | Callable[[], Any]
"""`space=` of a decorator; a text is `AUTO`."""
OnMiss = Literal["tune", "predict", "background", "raise"]

ON_MISS: Final[tuple[str, ...]] = get_args(OnMiss)

Limit = float | Literal["host"]
"""`skip_tuning_below_us=` of a decorator: microseconds, or what a launch costs the host."""


@dataclass(frozen=True, kw_only=True)
class DecoratorOptions:
    """The checked arguments of the decorator; `asm_autotune` says what each is for.

    Attributes:
        space: the configs, or a function that makes them.
        prune: the user's own choice of what is searched, by arguments.
        choices: how to tune, by keyword; see `tuning.options.TuneOptions`.
        strict: refuse bad use; under `patch()` that is left to Triton.
    """

    space: SpaceSource
    key: KeySource = ()
    skip_tuning_below_us: Limit | None = "host"
    fallback: Config | Callable[[Arguments], Any] | None = None
    on_miss: OnMiss | None = None
    prune: Pruning | None = None
    choices: Mapping[str, Any] = field(default_factory=dict)
    strict: bool = True

    def __post_init__(self) -> None:
        if self.on_miss is not None and self.on_miss not in ON_MISS:
            raise ArgumentTypeError(f"on_miss={self.on_miss!r}: give one of {', '.join(ON_MISS)}")
        limit_us, own = self.skip_tuning_below_us, self.fallback
        is_number = isinstance(limit_us, int | float) and not isinstance(limit_us, bool)
        if limit_us is not None and limit_us != "host" and not (is_number and limit_us >= 0):
            raise ArgumentTypeError(
                f"skip_tuning_below_us={shortened(repr(limit_us))}: give microseconds, a number "
                'of 0 or more, "host" or None'
            )
        if own is not None and not _is_function(own):
            try:
                Config.of(own)
            except InputError as error:
                raise ArgumentTypeError(
                    f"fallback={shortened(repr(own))}: give a config, a function of the "
                    "arguments by name that returns one, or None"
                ) from error

    def revised(self, changes: Mapping[str, Any]) -> DecoratorOptions:
        """Return the options with changes by name; what is no attribute says how to tune.

        Raises:
            InputError: one has an invalid value.
        """
        own = {name: value for name, value in changes.items() if name in vars(self)}
        rest = {name: value for name, value in changes.items() if name not in own}
        choices: Any = {**self.choices, **rest}
        if rest:  # else the tuner need not be loaded before it is needed
            from asmtune.tuning.options import TuneOptions

            TuneOptions.of(choices)
        return replace(self, choices=choices, **own)

    @property
    def miss_action(self) -> OnMiss:
        """Return `on_miss`; by default nothing waits where an alternative can be called meanwhile.

        Where a fallback is given, or only checked configs may run, no alternative is called first.
        """
        if self.on_miss is not None:
            return self.on_miss
        serves = self.choices.get("alternatives") and self.fallback is None
        return "background" if serves and not self.checked_only else "tune"

    @property
    def checked_only(self) -> bool:
        """Return whether no config but the default may be launched unchecked."""
        check = self.choices.get("check", "close")
        return check is not False and check != "close"

    def fallback_config(self, space: Space, arguments: Arguments) -> Config:
        """Return the config of `fallback`, or the space's default."""
        if self.fallback is None:
            return space.first(**numbers(arguments))
        if not callable(self.fallback):
            return Config.of(self.fallback)
        with inside():
            return Config.of(self.fallback(arguments))


def _is_function(value: Any) -> bool:
    return callable(value) and not is_kernel(value)


def numbers(arguments: Arguments) -> dict[str, Any]:
    """Return the arguments that a space's constraints may name: numbers."""
    return {name: value for name, value in arguments.items() if type(value) in (int, float, bool)}


_chosen: Final[list[bool | None]] = [None]
_listeners: WeakKeyDictionary[Any, Callable[[Any], None]] = WeakKeyDictionary()


class Determinism:
    """The state before a call of `deterministic`, which the end of a `with` block restores."""

    def __init__(self, before: bool | None) -> None:
        self._before = before

    def __enter__(self) -> Determinism:
        return self

    def __exit__(self, *_: object) -> None:
        _choose(self._before)


def deterministic(enabled: bool = True) -> Determinism:
    """Make every launch of this process choose its config deterministically, or not.

    It counts from now on, or inside a `with` block; for all threads. It takes precedence over
    ASMTUNE_DETERMINISTIC and over `torch.use_deterministic_algorithms`.

        asmtune.deterministic()
        with asmtune.deterministic(): ...

    Raises:
        InputError: `enabled` is no bool.
    """
    if not isinstance(enabled, bool):
        raise ArgumentTypeError(f"deterministic({enabled!r:.60}): give True or False")
    before = _chosen[0]
    _choose(enabled)
    return Determinism(before)


def is_deterministic() -> bool:
    """Return whether launches choose deterministically now."""
    chosen = _chosen[0]
    if chosen is not None:
        return chosen
    return deterministic_by_environment() or are_deterministic_algorithms_enabled()


def on_switch(owner: Any, forget: Callable[[Any], None]) -> None:
    """Call `forget(owner)` at each switch, as long as the owner lives."""
    _listeners[owner] = forget


def _choose(state: bool | None) -> None:
    if state != _chosen[0]:
        _chosen[0] = state
        for owner, forget in list(_listeners.items()):
            forget(owner)
