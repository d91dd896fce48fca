"""Other options for kernels that are decorated already, such as those that come with asmtune."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from types import ModuleType
from typing import Any, Final

from asmtune.base.errors import InputError
from asmtune.base.text import did_you_mean
from asmtune.runtime.autotuner import AsmAutotuner
from asmtune.runtime.decorator import checked_choices
from asmtune.runtime.options import DecoratorOptions

_OF_LAUNCHES: Final = ("small", "heuristic", "on_miss", "nearest")
CHANGEABLE: Final = (*_OF_LAUNCHES, "effort", "force")
"""Options that change neither what a config is kept by nor what a launch does."""


def reconfigure(kernel: AsmAutotuner | ModuleType, **changes: Any) -> None:
    """Changes options of a decorated kernel, or of all kernels of a module, from now on.

        from asmtune.kernels import softmax

        reconfigure(softmax, on_miss="predict", nearest=True)

    Args:
        kernel: what `@asm_autotune` made, or a module with such kernels.
        changes: of `small`, `heuristic`, `on_miss`, `nearest`, `effort` and `force`; see
            `asm_autotune`.

    Raises:
        InputError: the module has no such kernel, an option is none of these, or of another form.
    """
    found = autotuners(kernel) if isinstance(kernel, ModuleType) else [kernel]
    if not found:
        raise InputError(
            f"reconfigure: module {getattr(kernel, '__name__', kernel)} has no kernel decorated "
            "with @asm_autotune; give the decorated kernel itself"
        )
    revised = [_revised(tuner.options, changes) for tuner in found]
    for tuner, options in zip(found, revised, strict=True):
        tuner.reconfigure(options)


def autotuners(module: ModuleType) -> list[AsmAutotuner]:
    """The decorated kernels among a module's names, and in its dicts, lists and tuples."""
    found: dict[int, AsmAutotuner] = {}
    for value in vars(module).values():
        inner = value.values() if isinstance(value, Mapping) else value
        items = inner if isinstance(value, Mapping | list | tuple) else (value,)
        found |= {id(item): item for item in items if isinstance(item, AsmAutotuner)}
    return list(found.values())


def _revised(options: DecoratorOptions, changes: Mapping[str, Any]) -> DecoratorOptions:
    for name in changes:
        if name not in CHANGEABLE:
            hint = did_you_mean(name, CHANGEABLE)
            raise InputError(
                f"reconfigure: option {name!r} cannot be changed, only "
                f"{', '.join(CHANGEABLE)}{hint}"
            )
    of_launches = {name: changes[name] for name in _OF_LAUNCHES if name in changes}
    rest = {name: value for name, value in changes.items() if name not in of_launches}
    choices = {**options.choices, **checked_choices(rest)}
    return replace(options, choices=choices, **of_launches)
