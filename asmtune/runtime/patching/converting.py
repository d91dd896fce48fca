"""From one of Triton's autotuners to an `AsmAutotuner` that means the same."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from asmtune.core.config import Config
from asmtune.core.space.space import Space
from asmtune.runtime.autotuner import AsmAutotuner
from asmtune.runtime.decorator import decorator_options
from asmtune.runtime.options import DecoratorOptions
from asmtune.runtime.triton_configs import as_listed


class ConvertedAutotuner(AsmAutotuner):
    """One for a program that was written for Triton's: its configs are the program's own.

    `best_config` is among them where it is one of them, and they may be replaced, as programs
    do that pin one.
    """

    def __init__(self, kernel: Any, options: DecoratorOptions, listed: Sequence[Any]) -> None:
        self._given: Sequence[Any] | None = None
        super().__init__(kernel, options)
        self._given = listed
        self._shown: tuple[Config | None, Any] = (None, None)

    @property
    def configs(self) -> Any:
        """As the program gave them."""
        listed = super().configs  # Dynamo asks here, and is prepared there
        return listed if self._given is None else self._given

    @configs.setter
    def configs(self, value: Any) -> None:
        if self._given is None:
            return  # Triton's constructor sets them; the space says what they are
        kernel, options = self.fn, replace(self.options, space=Space.from_configs(list(value)))
        self.__dict__.clear()  # what was planned and remembered is of the former configs
        self._given = None
        super().__init__(kernel, options)
        self._given, self._shown = value, (None, None)

    @property
    def best_config(self) -> Any:
        """Of the last launch, as a `triton.Config`; None before the first."""
        best = super().best_config
        if best is not self._shown[0]:  # else no hash need be made at each launch
            self._shown = (best, best and as_listed(best, self._given or ()))
        return self._shown[1]

    @best_config.setter
    def best_config(self, config: Any) -> None:
        self._best = config


def convert(instance: Any, options: Mapping[str, Any]) -> ConvertedAutotuner:
    """An `AsmAutotuner` that means what one of Triton's autotuners means.

    Args:
        instance: of `triton.runtime.Autotuner`, or of a subclass.
        options: keywords of `asm_autotune`, of no kernel in particular.

    Returns:
        It is not strict: what Triton lets pass, such as an empty grid, passes.
    """
    names = set(instance.arg_names)
    keywords: dict[str, Any] = {
        "prune_configs_by": _pruning(instance),
        "reset_to_zero": list(instance.reset_to_zero),
        "restore_value": list(instance.restore_value),
        "pre_hook": instance.pre_hook if instance.user_defined_pre_hook else None,
        "post_hook": instance.post_hook if instance.user_defined_post_hook else None,
        "cache_results": bool(instance.cache_results),
        **_timing(instance),
        **options,
    }
    # Triton drops a key that is no parameter without a word, until 3.9 refuses it when decorating.
    keys = [key for key in instance.keys or () if key in names]
    made = decorator_options(list(instance.configs), keys, strict=False, **keywords)
    return ConvertedAutotuner(instance.fn, made, instance.configs)


def _pruning(instance: Any) -> dict[str, Any] | None:
    if instance.perf_model is None and instance.early_config_prune is None:
        return None
    return {
        "perf_model": instance.perf_model,
        "top_k": instance.configs_top_k,
        "early_config_prune": instance.early_config_prune,
    }


def _timing(instance: Any) -> dict[str, Any]:
    """How it was told to time; Triton makes a `do_bench` of the older keywords by itself."""
    warmup, rep = instance.num_warmups, instance.num_reps
    if warmup is None and rep is None and not instance.use_cuda_graph:
        return {"do_bench": instance._do_bench}
    return {"warmup": warmup, "rep": rep, "use_cuda_graph": bool(instance.use_cuda_graph)}
