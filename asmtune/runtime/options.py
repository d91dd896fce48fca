"""What the decorator was given."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal, get_args

from asmtune.base.errors import InputError
from asmtune.core.config import Config
from asmtune.core.keys.parts import KeySource
from asmtune.core.space.space import Space
from asmtune.runtime.pruning import Pruning

Arguments = Mapping[str, Any]
SpaceSource = Space | Mapping[str, Iterable[Any]] | Sequence[Any] | Callable[[], Any]
Small = int | Callable[[Arguments], bool] | Literal["auto"] | None
OnMiss = Literal["tune", "predict", "background", "raise"]

_NUMBERS: Final = (int, float, bool)
ON_MISS: Final[tuple[str, ...]] = get_args(OnMiss)


@dataclass(frozen=True, kw_only=True)
class DecoratorOptions:
    """What the decorator was given.

    Attributes:
        space: where configs come from.
        key: what a tuned config depends on; see `asmtune.core.keys`.
        small: which problems are not worth timing: "auto" (predicted to run for less time than
            a launch costs the host), a number of elements of the largest tensor argument, a
            predicate over the arguments by name, or None for no problem. These take
            `heuristic`'s config where there is one, else the model's first pick.
        heuristic: a config, or a function of the arguments by name that gives
            one; the space's default where it is None.
        on_miss: what to do with a key that no store knows: "tune" it now, "predict" (the
            model's first pick, nothing timed), tune it in the "background" and go on with a
            pick meanwhile, or "raise".
        nearest: whether the nearest stored neighbour may be the pick while a key is unknown.
        prune: the user's own choice of what is searched, by arguments.
        choices: of how to tune, by keyword; see `tuning.TuneOptions`.
        strict: whether bad use is refused; under `patch()` it is left to Triton.
    """

    space: SpaceSource
    key: KeySource = ()
    small: Small = "auto"
    heuristic: Config | Callable[[Arguments], Any] | None = None
    on_miss: OnMiss = "tune"
    nearest: bool = False
    prune: Pruning | None = None
    choices: Mapping[str, Any] = field(default_factory=dict)
    strict: bool = True

    def __post_init__(self) -> None:
        if self.on_miss not in ON_MISS:
            raise InputError(f"on_miss={self.on_miss!r}: give one of {', '.join(ON_MISS)}")
        small = self.small
        if isinstance(small, str | bool | float) and small != "auto":
            raise InputError(
                f"small={small!r}: give 'auto', a number of elements, a function of the "
                "arguments by name, or None"
            )

    def heuristic_config(self, space: Space, arguments: Arguments) -> Config:
        """The user's heuristic, or the space's default: a config that nothing is known of."""
        if self.heuristic is None:
            return space.first(**numbers(arguments))
        made = self.heuristic(arguments) if callable(self.heuristic) else self.heuristic
        return Config.of(made)


def numbers(arguments: Arguments) -> dict[str, Any]:
    """The arguments that a space's constraints may name."""
    return {name: value for name, value in arguments.items() if type(value) in _NUMBERS}
