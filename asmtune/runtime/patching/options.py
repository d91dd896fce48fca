"""Options of `patch()`: those of `asm_autotune` that are of no kernel in particular."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final, TypedDict

from asmtune.base.errors import InputError
from asmtune.base.text import did_you_mean

if TYPE_CHECKING:
    from asmtune.runtime.options import OnMiss, Small
    from asmtune.tuning.objective import Objective
    from asmtune.tuning.presets import Effort


class PatchOptions(TypedDict, total=False):
    """Keywords of `patch`; `TuneOptions` and `DecoratorOptions` say what each is for."""

    effort: str | Effort
    isolate: bool
    devices: tuple[int, ...] | None
    objective: str | Objective
    seed: int
    tiles: bool
    force: bool
    on_busy: str
    check: bool
    on_miss: OnMiss
    small: Small
    nearest: bool


_OF_LAUNCHES: Final = ("on_miss", "small", "nearest")


def check_options(options: Mapping[str, Any]) -> None:
    """Checks what `patch` would be given.

    Raises:
        InputError: as `patch`.
    """
    known = tuple(PatchOptions.__annotations__)
    for name in options:
        if name not in known:
            hint = did_you_mean(name, known)
            raise InputError(
                f"patch: {name!r} is no option for all kernels: they are {', '.join(known)}{hint}"
            )
    from asmtune.runtime.options import DecoratorOptions

    DecoratorOptions(space={}, **{name: options[name] for name in _OF_LAUNCHES if name in options})
    choices: Any = {name: options[name] for name in options if name not in _OF_LAUNCHES}
    if choices:
        from asmtune.tuning.options import TuneOptions

        TuneOptions.of(choices)
