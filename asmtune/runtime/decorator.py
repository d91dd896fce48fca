"""`asm_autotune` and `reconfigure`: options are checked and become a `DecoratorOptions`."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from types import ModuleType
from typing import TYPE_CHECKING, Any, Final

from asmtune.base.errors import ArgumentTypeError, InputError
from asmtune.base.text import did_you_mean, shortened
from asmtune.core.config import Config
from asmtune.core.keys.parts import KeySource
from asmtune.core.space.space import AUTO, Space
from asmtune.runtime.checks import FORM, check_configs
from asmtune.runtime.options import (
    Arguments,
    DecoratorOptions,
    Limit,
    OnMiss,
    Pruning,
    SpaceSource,
)
from asmtune.triton_api.jit_functions import is_kernel

if TYPE_CHECKING:
    from asmtune.core.alternatives import Alternatives
    from asmtune.measure.bench.base import DoBench, PostHook, PreHook
    from asmtune.measure.checks.roles import Reference, Restore
    from asmtune.runtime.autotuner import AsmAutotuner
    from asmtune.tuning.options import Check, Effort


CHANGEABLE: Final = (
    *("fallback", "on_miss", "skip_tuning_below_us"),
    *("effort", "isolate", "force", "seed"),
)
"""Options that `reconfigure` may change: they leave the key and the kernel's checks as they are."""


def asm_autotune(
    configs: Sequence[Any] | None = None,
    key: KeySource = (),
    prune_configs_by: Mapping[str, Any] | None = None,
    *,
    reset_to_zero: Sequence[str] | None = None,
    restore_value: Sequence[str] | Restore | None = None,
    pre_hook: PreHook | None = None,
    post_hook: PostHook | None = None,
    warmup: float | None = None,
    rep: float | None = None,
    use_cuda_graph: bool = False,
    do_bench: DoBench | None = None,
    cache_results: bool = False,
    space: SpaceSource | None = None,
    effort: str | Effort = "balanced",
    isolate: bool = False,
    alternatives: Alternatives | None = None,
    check: Check = "close",
    reference: Reference | None = None,
    tolerance: float | None = None,
    on_miss: OnMiss | None = None,
    fallback: Config | Callable[[Arguments], Any] | None = None,
    skip_tuning_below_us: Limit | None = "host",
) -> Callable[[Any], AsmAutotuner]:
    """Tune a Triton kernel on its first launch with a new key, then remember the config.

        @asm_autotune(space=Space({"BLOCK": [128, 256, 512], "num_warps": [4, 8]}), key=["n"])
        @triton.jit
        def add(x_ptr, y_ptr, out_ptr, n, BLOCK: tl.constexpr): ...

        add[lambda meta: (triton.cdiv(n, meta["BLOCK"]),)](x, y, out, n)

    Options up to `cache_results` are those of `triton.autotune`, with its meaning. Dtypes of
    tensor arguments and the device's name are part of every key. `reconfigure` has options of the
    process that tunes: `force` and `seed`.

    Args:
        configs: a list of `triton.Config` or `Config`; instead of `space`.
        key: names of arguments, buckets and functions of them (see `asmtune.core.keys`); a new
            value looks the config up anew. By default one config serves all sizes.
        prune_configs_by: `early_config_prune`, `perf_model` and `top_k`, by name: they choose
            what is searched for a launch. By default all configs are.
        reset_to_zero: names of arguments that are zeroed before each run while tuning.
        restore_value: names of arguments that get their contents back before each run while
            tuning, or a function, called with the arguments by name before each run and after
            the last, that puts back memory of no argument, such as that behind a table of
            addresses. By default what the kernel reads and writes is put back, and a kernel that
            may write other memory is not timed.
        pre_hook: called as `pre_hook(kwargs)` before each launch while tuning, after that of the
            config, and once as `pre_hook(kwargs, reset_only=True)` with the winner's values when
            tuning is done. `kwargs` are all arguments by name and the config's values. It takes
            the place of `restore_value` and `reset_to_zero`. Its time does not count.
        post_hook: called as `post_hook(kwargs, exception=None)` after each launch while tuning, or
            with what the launch raised. It takes the place of `restore_value`.
        warmup: milliseconds for which each config is launched before its first sample, in every
            trial and final; by default one launch.
        rep: milliseconds of its own launches for which a config is timed at most in a trial, by
            default 30, and five times as long in the finals. The clock stops earlier where a
            config is clearly slower or its time is steady.
        use_cuda_graph: whether launches are timed in a CUDA graph, 10 together, hooks included; by
            default False. A config that cannot be captured fails.
        do_bench: `do_bench(kernel_call, quantiles=(0.5, 0.2, 0.8))` times instead of our clock:
            milliseconds, `[median, p20, p80]` or one number, of which the least wins. Calling
            `kernel_call` launches once, with hooks and with what puts arguments back; outputs are
            checked before. As in Triton, `warmup`, `rep` and `use_cuda_graph` leave it unused.
        cache_results: accepted, and without effect: results are always kept.
        space: a `Space`, axes by name, a function that makes one, or "auto": block sizes, warps
            and stages by the kernel's source; instead of `configs`.
        effort: how hard to search: "quick", "balanced" (default), "thorough", "exhaustive", or an
            `Effort`.
        isolate: whether configs run in a process of their own, so that one that faults or hangs
            ends that process alone; by default False. It costs some seconds to start, and a copy
            of the arguments.
        alternatives: functions by name, such as `{"cublas": fn}`, that do what the kernel does:
            called with a launch's arguments (by position up to the first that the launch leaves to
            the config, by name after it), they write its outputs. They are checked like a config,
            timed beside the finalists, and called where one wins. The default is no alternatives.
        check: how outputs may differ from those of the default config. "close" (default): as
            roundings do. "bits": in no bit. A `Bound`, such as `Bound(p99=3e-2, clip=0.03)`: every
            floating-point output keeps these limits on its errors, the default's too, and what no
            limit names is not checked (limit `max_rel` where single wrong elements must not pass).
            False: in any way. With "bits" and a `Bound` the default is launched where nothing is
            tuned.
        reference: takes the arguments by name and returns what the kernel should leave, which
            outputs are compared with; with a `Bound` it may be of fp32 or fp64. By default the
            default config's outputs.
        tolerance: how far "close" results may be from the expected: |c - r| <= tolerance (|r| + s),
            s the usual magnitude around r. By default each dtype has its own.
        on_miss: what a launch does whose key no store has: "tune" it now, "predict" (take the
            model's first pick and time nothing), tune it in the "background" and go on with the
            first alternative or a provisional config until then, or "raise". By default
            "background" where `alternatives` are given without a `fallback` and check is "close"
            or False, else "tune".
        fallback: a config, or a function of the arguments by name that gives one, to launch where
            nothing is tuned or predicted; by default the space's default config.
        skip_tuning_below_us: microseconds; a launch that is predicted to take less is not worth
            timing, and takes `fallback`'s config if it is given, else that of `rules.gemm` where
            the space has a product's blocks, else the default. "host" (default): twice the work
            takes less than the launch costs the host. None times every key.

    Raises:
        InputError: not exactly one of `configs` and `space` is given, an option has an invalid
            value, the kernel is not a Triton kernel, or the key names an unknown parameter. It is a
            TypeError too where an argument is of a type that never fits, such as the kernel
            itself under `@asm_autotune` without parentheses.
    """
    given = dict(locals())
    defaults: Mapping[str, Any] = asm_autotune.__kwdefaults__ or {}
    options = {name: given[name] for name in defaults if given[name] is not defaults[name]}
    checked = decorator_options(configs, key, prune_configs_by, options)

    def decorate(kernel: Any) -> AsmAutotuner:
        from asmtune.runtime.autotuner import AsmAutotuner

        return AsmAutotuner(kernel, checked)

    return decorate


def decorator_options(
    configs: Sequence[Any] | None,
    key: KeySource,
    prune_configs_by: Mapping[str, Any] | None,
    options: Mapping[str, Any],
    *,
    strict: bool = True,
) -> DecoratorOptions:
    """Check the arguments of `asm_autotune` and make its options.

    Args:
        configs: as `asm_autotune`'s.
        key: as `asm_autotune`'s.
        prune_configs_by: as `asm_autotune`'s.
        options: others of `asm_autotune` or `reconfigure`, by name.
        strict: refuse bad use; under `patch()` that is left to Triton.

    Raises:
        InputError: as `asm_autotune`, but for what depends on the kernel.
    """
    rest = dict(options)
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
    own = DecoratorOptions(space=space, key=key, prune=Pruning.of(prune_configs_by), strict=strict)
    return own.revised(rest)


def _check_space_source(space: Any) -> None:
    """Check that `space=` can be one; a function that makes one is called at the first launch."""
    is_class = isinstance(space, type) and not issubclass(space, Space)
    is_auto = isinstance(space, str) and space == AUTO
    if (callable(space) and not is_class and not is_kernel(space)) or is_auto:
        return
    if is_class or isinstance(space, str) or not isinstance(space, Space | Collection):
        raise ArgumentTypeError(
            f"asm_autotune: space={shortened(repr(space))}: expected a Space, axes by name, a list "
            f"of configs, or a function that makes one, such as {FORM}"
        )


def reconfigure(kernel: AsmAutotuner | ModuleType, **changes: Any) -> None:
    """Change options of a decorated kernel, or of all kernels of a module, from now on.

        from asmtune.kernels import softmax

        reconfigure(softmax, on_miss="predict")

    Args:
        kernel: what `@asm_autotune` made, or a module with such kernels.
        changes: some of `on_miss`, `fallback`, `skip_tuning_below_us`, `effort` and `isolate` (see
            `asm_autotune`), `force` and `seed` (see
            `asmtune.tuning.options.TuneOptions`).

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
    for name in changes:
        if name not in CHANGEABLE:
            raise InputError(
                f"reconfigure: option {name!r} cannot be changed, only "
                f"{', '.join(CHANGEABLE)}{did_you_mean(name, CHANGEABLE)}"
            )
    revised = [tuner.options.revised(changes) for tuner in kernels]
    for tuner, options in zip(kernels, revised, strict=True):
        tuner.reconfigure(options)


def autotuners(module: ModuleType) -> list[AsmAutotuner]:
    """List the kernels that `@asm_autotune` made among a module's names, and in containers."""
    from asmtune.runtime.autotuner import AsmAutotuner

    return [tuner for tuner in triton_autotuners(module) if isinstance(tuner, AsmAutotuner)]


def triton_autotuners(module: Any) -> list[Any]:
    """List the autotuners of any kind among a module's names, under decorators, in containers."""
    from asmtune.triton_api.autotuners import autotuner_in

    if not issubclass(type(module), ModuleType):
        return []
    names = object.__getattribute__(module, "__dict__")  # wakes no module that loads itself
    items = [item for value in list(names.values()) for item in _items(value)]
    found = (autotuner_in(item) for item in items)
    return list({id(tuner): tuner for tuner in found if tuner is not None}.values())


def _items(value: Any) -> Iterable[Any]:
    kind = type(value)
    if kind is dict:
        return list(value.values())
    if kind in (list, tuple):
        return list(value)
    if kind is type and value.__module__ != "builtins":  # a class with kernels
        return [getattr(item, "__func__", item) for item in vars(value).values()]
    return (value,)
