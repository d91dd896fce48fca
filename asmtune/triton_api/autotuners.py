"""Triton's autotuner: its class, what a program gave one, and what Triton learns about tuning."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable, Mapping
from typing import Any, Final

from triton import knobs
from triton.runtime.autotuner import Autotuner, Heuristics, autotune

from asmtune.triton_api.jit_functions import heuristic_rules, innermost, is_jit_function
from asmtune.triton_api.user_state import outside

__all__ = ["Autotuner", "Heuristics", "autotune"]

Rules = tuple[tuple[str, Callable[..., Any]], ...]

# Methods of Triton's autotuner that decide what is timed and how. If a subclass or a program
# replaces one, it knows something that asmtune does not: Triton itself tunes it.
_REPLACEABLE: Final = ("_bench", "prune_configs", "check_disk_cache", "do_bench")


def without_autotuner(kernel: Any) -> Any:
    """Return a kernel without Triton's autotuner, which takes no values of its own axes."""
    if isinstance(kernel, Autotuner):
        return without_autotuner(kernel.fn)
    if isinstance(kernel, Heuristics):
        kernel = copy.copy(kernel)
        kernel.fn = without_autotuner(kernel.fn)
    return kernel


def autotuner_in(value: Any) -> Any | None:
    """Return the autotuner among a kernel's decorators, or None; wake no object of other types."""
    layer = value
    while layer is not None and issubclass(type(layer), (Autotuner, Heuristics)):
        if isinstance(layer, Autotuner):
            return layer
        layer = vars(layer).get("fn")
    return None


def searched_configs(
    kernel: Any, args: tuple[Any, ...], keywords: Mapping[str, Any]
) -> list[Any] | None:
    """Return what Triton would time at a launch, after `prune_configs_by`; None without a list."""
    instance = autotuner_in(kernel)
    if instance is None or len(instance.configs) < 2:  # of one, Triton asks no function
        return None
    held = getattr(instance, "nargs", None)
    instance.nargs = dict(zip(instance.arg_names, args, strict=False))
    try:
        return list(instance.prune_configs(dict(keywords)))
    finally:
        instance.nargs = held


def pruning_autotuner(prune: Callable[..., Any]) -> Any | None:
    """Return the autotuner that is calling its `early_config_prune`; None where none is.

    Triton hands that function the configs and the launch, but not the kernel.
    """
    frame = inspect.currentframe()
    while frame is not None:
        owner = frame.f_locals.get("self")
        if isinstance(owner, Autotuner) and owner.early_config_prune is prune:
            return owner
        frame = frame.f_back
    return None


def plain_rules(kernel: Any) -> Rules | None:
    """Return the rules of `@triton.heuristics`, in the order of their calls.

    None where another program's decorator stands between, and under the interpreter.
    """
    layer, rules = kernel, tuple(heuristic_rules(kernel))
    while type(layer) is Heuristics and "run" not in vars(layer):
        layer = layer.fn
    is_known = layer is innermost(kernel) and not {"grid", "warmup"} & dict(rules).keys()
    return rules if is_known and is_jit_function(layer) else None


def has_own_parts(instance: Any) -> bool:
    """Return whether an autotuner's class or instance replaces a part of Triton's tuning."""
    own = type(instance)
    return any(
        inspect.getattr_static(own, part, None) is not inspect.getattr_static(Autotuner, part, None)
        or (part != "do_bench" and part in vars(instance))  # `do_bench` is cached there once used
        for part in _REPLACEABLE
    )


def launch_key(
    instance: Any, args: tuple[Any, ...], keywords: Mapping[str, Any]
) -> tuple[Any, ...]:
    """Make the key of a launch in an autotuner's `cache`, as its `run` does."""
    named = {**dict(zip(instance.arg_names, args, strict=False)), **keywords}
    named = {name: value for name, value in named.items() if name in instance.arg_names}
    values = [named[name] for name in instance.keys if name in named]
    with outside():
        dtypes = [str(value.dtype) for value in named.values() if hasattr(value, "dtype")]
    return (*values, *dtypes)


def given_options(instance: Any) -> dict[str, Any]:
    """Return the keywords that an autotuner was decorated with, but for configs and key."""
    return {
        "prune_configs_by": _pruning(instance),
        "reset_to_zero": list(instance.reset_to_zero),
        "restore_value": list(instance.restore_value),
        "pre_hook": instance.pre_hook if instance.user_defined_pre_hook else None,
        "post_hook": instance.post_hook if instance.user_defined_post_hook else None,
        "cache_results": bool(instance.cache_results),
        **_timing(instance),
    }


def _pruning(instance: Any) -> dict[str, Any] | None:
    if instance.perf_model is None and instance.early_config_prune is None:
        return None
    return {
        "perf_model": instance.perf_model,
        "top_k": instance.configs_top_k,
        "early_config_prune": instance.early_config_prune,
    }


def _timing(instance: Any) -> dict[str, Any]:
    """Return its timing options; Triton makes a `do_bench` of the older keywords by itself."""
    warmup, rep = instance.num_warmups, instance.num_reps
    if warmup is None and rep is None and not instance.use_cuda_graph:
        return {"do_bench": instance._do_bench}
    return {"warmup": warmup, "rep": rep, "use_cuda_graph": bool(instance.use_cuda_graph)}


def prints_tuning() -> bool:
    """Return whether the user asks Triton's autotuner to print (TRITON_PRINT_AUTOTUNING=1)."""
    return bool(knobs.autotuning.print)
