"""The decorator and its options."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Unpack

from asmtune.config import Config
from asmtune.dispatch.autotuner import Arguments, AsmAutotuner, DecoratorOptions, SpaceSource
from asmtune.errors import InputError
from asmtune.space import Space

if TYPE_CHECKING:
    from asmtune.tuning.options import Choices

    class Options(Choices, total=False):
        """Keywords of `asm_autotune`; `DecoratorOptions` and `TuneOptions` say what each is for."""

        space: SpaceSource
        small: int | Callable[[Arguments], bool] | None
        heuristic: Config | Callable[[Arguments], Any] | None


def asm_autotune(
    configs: Sequence[Any] | None = None, key: Iterable[str] = (), **options: Unpack[Options]
) -> Callable[[Any], AsmAutotuner]:
    """Tunes a Triton kernel on its first launch with a new key, then remembers.

        @asm_autotune(space=Space({"BLOCK": [128, 256, 512], "num_warps": [4, 8]}), key=["n"])
        @triton.jit
        def add(x_ptr, y_ptr, out_ptr, n, BLOCK: tl.constexpr): ...

        add[lambda meta: (triton.cdiv(n, meta["BLOCK"]),)](x, y, out, n)

    Dtypes of tensor arguments and the device's name are part of every key.

    Args:
        configs: a list of `triton.Config` or `Config`; instead of `space`.
        key: names of arguments; a change of a value looks the config up anew.
        options: `space`: a `Space`, axes by name, or a function that makes one. `small` and
            `heuristic`: see `DecoratorOptions`. `effort`, `isolate`, `reference`,
            `restore_value`, `reset_to_zero` and the others: see `tuning.TuneOptions`.

    Raises:
        InputError: not exactly one of `configs` and `space` is given, an option is unknown or
            none of its forms, the kernel is none of Triton's, or a key names no parameter of it.
    """
    rest: dict[str, Any] = dict(options)
    space = rest.pop("space", None)
    if (configs is None) == (space is None):
        raise InputError("asm_autotune: give either configs= or space=, and not both")
    source: SpaceSource = space if space is not None else Space.from_configs(list(configs or ()))
    small, heuristic = rest.pop("small", None), rest.pop("heuristic", None)
    _check_choices(rest)
    made = DecoratorOptions(
        space=source, key=tuple(key), small=small, heuristic=heuristic, choices=rest
    )
    return lambda kernel: AsmAutotuner(kernel, made)


def _check_choices(choices: Mapping[str, Any]) -> None:
    if not choices:
        return  # nothing to check, and the tuner need not be loaded before it is needed
    from asmtune.tuning.options import Choices, TuneOptions

    known = Choices.__annotations__
    for name in choices:
        if name not in known:
            near = difflib.get_close_matches(name, [*known, "space", "small", "heuristic"], 1)
            hint = f"; did you mean {near[0]}?" if near else ""
            raise InputError(f"asm_autotune: unknown option {name!r}{hint}")
    TuneOptions.of(Choices(**choices))  # type: ignore[typeddict-item]
