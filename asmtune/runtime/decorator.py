"""`asm_autotune` and `reconfigure`: options are checked and become a `DecoratorOptions`."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from types import ModuleType
from typing import TYPE_CHECKING, Any, Final, Unpack

from asmtune.base.errors import ArgumentTypeError, InputError
from asmtune.base.text import did_you_mean, shortened
from asmtune.core.config import Config
from asmtune.core.keys.parts import KeySource
from asmtune.core.space.space import Space
from asmtune.runtime.checks import FORM, check_configs
from asmtune.runtime.options import Arguments, DecoratorOptions, OnMiss, Pruning, Small, SpaceSource
from asmtune.triton_api.jit_functions import is_kernel

if TYPE_CHECKING:
    from asmtune.runtime.autotuner import AsmAutotuner
    from asmtune.tuning.options import Choices

    class Options(Choices, total=False):
        """Keywords of `asm_autotune`; `DecoratorOptions` and `TuneOptions` say what each is for."""

        space: SpaceSource
        small: Small
        heuristic: Config | Callable[[Arguments], Any] | None
        on_miss: OnMiss
        nearest: bool
        strict: bool


_OF_LAUNCHES: Final = ("small", "heuristic", "on_miss", "nearest")
CHANGEABLE: Final = (*_OF_LAUNCHES, "effort", "force")
"""Options that `reconfigure` may change: they leave the key and the provenance as they are."""


def asm_autotune(
    configs: Sequence[Any] | None = None,
    key: KeySource = (),
    prune_configs_by: Mapping[str, Any] | None = None,
    **options: Unpack[Options],
) -> Callable[[Any], AsmAutotuner]:
    """Tune a Triton kernel on its first launch with a new key, then remember the config.

        @asm_autotune(space=Space({"BLOCK": [128, 256, 512], "num_warps": [4, 8]}), key=["n"])
        @triton.jit
        def add(x_ptr, y_ptr, out_ptr, n, BLOCK: tl.constexpr): ...

        add[lambda meta: (triton.cdiv(n, meta["BLOCK"]),)](x, y, out, n)

    It takes what `triton.autotune` takes, with the same meaning. Dtypes of tensor arguments
    and the device's name are part of every key.

    Args:
        configs: a list of `triton.Config` or `Config`; instead of `space`.
        key: names of arguments, buckets and functions of them (see `asmtune.core.keys`); a new
            value looks the config up anew.
        prune_configs_by: `early_config_prune`, `perf_model` and `top_k`; see `Pruning`.
        options: `space`: a `Space`, axes by name, or a function that makes one. `small`,
            `heuristic`, `on_miss` and `nearest`: see `DecoratorOptions`. `effort`, `isolate`,
            `restore_value`, `pre_hook`, `do_bench` and the others: see `tuning.TuneOptions`.

    Raises:
        InputError: not exactly one of `configs` and `space` is given, an option is unknown or has
            an invalid value, the kernel is not a Triton kernel, or the key names an unknown
            parameter. It is a TypeError too where an argument is of a type that never fits, such
            as the kernel itself under `@asm_autotune` without parentheses.
    """
    checked = decorator_options(configs, key, prune_configs_by, **options)

    def decorate(kernel: Any) -> AsmAutotuner:
        from asmtune.runtime.autotuner import AsmAutotuner

        return AsmAutotuner(kernel, checked)

    return decorate


def decorator_options(
    configs: Sequence[Any] | None = None,
    key: KeySource = (),
    prune_configs_by: Mapping[str, Any] | None = None,
    **options: Unpack[Options],
) -> DecoratorOptions:
    """Check the arguments of `asm_autotune` and make its options.

    Raises:
        InputError: as `asm_autotune`, but for what depends on the kernel.
    """
    rest: dict[str, Any] = dict(options)
    space = rest.pop("space", None)
    if (configs is None) == (space is None):
        raise ArgumentTypeError(
            f"asm_autotune: give either configs= or space=, and not both, such as {FORM}"
        )
    if configs is None:
        _check_space_source(space)
    else:
        check_configs(configs)
        # Triton launches with its own defaults where the list is empty.
        space = Space.from_configs(list(configs) or [Config({})])
    of_launches = {name: rest.pop(name) for name in (*_OF_LAUNCHES, "strict") if name in rest}
    choices = checked_choices(rest)
    return DecoratorOptions(
        space=space, key=key, prune=Pruning.of(prune_configs_by), choices=choices, **of_launches
    )


def _check_space_source(space: Any) -> None:
    """Check that `space=` can be one; a function that makes one is called at the first launch."""
    is_class = isinstance(space, type) and not issubclass(space, Space)
    if callable(space) and not is_class and not is_kernel(space):
        return
    if is_class or isinstance(space, str) or not isinstance(space, Space | Collection):
        raise ArgumentTypeError(
            f"asm_autotune: space={shortened(repr(space))}: expected a Space, axes by name, a list "
            f"of configs, or a function that makes one, such as {FORM}"
        )


def checked_choices(choices: Mapping[str, Any]) -> Mapping[str, Any]:
    """Check choices of how to tune, and return them.

    Raises:
        InputError: one is unknown, or has an invalid value.
    """
    if not choices:
        return choices  # nothing to check, and the tuner need not be loaded before it is needed
    from asmtune.tuning.options import Choices, TuneOptions

    known = Choices.__annotations__
    for name in choices:
        if name not in known:
            hint = did_you_mean(name, [*known, "space", *_OF_LAUNCHES, "strict"])
            raise InputError(f"asm_autotune: unknown option {name!r}{hint}")
    TuneOptions.of(Choices(**choices))  # type: ignore[typeddict-item]
    return choices


def reconfigure(kernel: AsmAutotuner | ModuleType, **changes: Any) -> None:
    """Change options of a decorated kernel, or of all kernels of a module, from now on.

        from asmtune.kernels import softmax

        reconfigure(softmax, on_miss="predict", nearest=True)

    Args:
        kernel: what `@asm_autotune` made, or a module with such kernels.
        changes: some of `small`, `heuristic`, `on_miss`, `nearest`, `effort` and `force`; see
            `asm_autotune`.

    Raises:
        InputError: the module has no such kernel, or an option is unknown or has an invalid
            value.
    """
    kernels = autotuners(kernel) if isinstance(kernel, ModuleType) else [kernel]
    if not kernels:
        raise InputError(
            f"reconfigure: module {getattr(kernel, '__name__', kernel)} has no kernel decorated "
            "with @asm_autotune; give the decorated kernel itself"
        )
    revised = [_revised(tuner.options, changes) for tuner in kernels]
    for tuner, options in zip(kernels, revised, strict=True):
        tuner.reconfigure(options)


def autotuners(module: ModuleType) -> list[AsmAutotuner]:
    """List the decorated kernels among a module's names, and in its dicts, lists and tuples."""
    from asmtune.runtime.autotuner import AsmAutotuner

    kernels: dict[int, AsmAutotuner] = {}
    for value in vars(module).values():
        inner = value.values() if isinstance(value, Mapping) else value
        items = inner if isinstance(value, Mapping | list | tuple) else (value,)
        kernels |= {id(item): item for item in items if isinstance(item, AsmAutotuner)}
    return list(kernels.values())


def _revised(options: DecoratorOptions, changes: Mapping[str, Any]) -> DecoratorOptions:
    for name in changes:
        if name not in CHANGEABLE:
            raise InputError(
                f"reconfigure: option {name!r} cannot be changed, only "
                f"{', '.join(CHANGEABLE)}{did_you_mean(name, CHANGEABLE)}"
            )
    of_launches = {name: changes[name] for name in _OF_LAUNCHES if name in changes}
    rest = {name: value for name, value in changes.items() if name not in of_launches}
    choices = {**options.choices, **checked_choices(rest)}
    return replace(options, choices=choices, **of_launches)
