"""`prune_configs_by=`: the user's own functions choose which configs are searched at all."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from asmtune.base.errors import InputError

_KNOWN = ("early_config_prune", "perf_model", "top_k")


@dataclass(frozen=True)
class Pruning:
    """The functions of `prune_configs_by`, with the meaning that `triton.autotune` gives them.

    Attributes:
        early_config_prune: takes configs, arguments by name as given by position, and those
            given by name as keywords; gives the configs to keep, one at least.
        perf_model: takes all arguments and a config's values by name; gives its expected time.
        top_k: how many configs the model keeps: a number, or a share up to 1.0.
    """

    early_config_prune: Callable[..., Sequence[Any]] | None = None
    perf_model: Callable[..., Any] | None = None
    top_k: int | float = 1.0

    @classmethod
    def of(cls, given: Mapping[str, Any] | None) -> Pruning | None:
        """The pruning of a `prune_configs_by=`; None where it asks for none.

        Raises:
            InputError: it is no mapping, or has another name than those that Triton knows.
        """
        if not given:
            return None
        if not isinstance(given, Mapping) or any(name not in _KNOWN for name in given):
            raise InputError(
                f"asm_autotune: prune_configs_by={given!r}: expected a dict of {', '.join(_KNOWN)}"
            )
        top_k = given.get("top_k", 1.0)
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

    def kept(
        self, configs: Sequence[Any], by_place: Mapping[str, Any], by_name: Mapping[str, Any]
    ) -> list[Any]:
        """The configs to search for one launch.

        Args:
            configs: `triton.Config`s.
            by_place: arguments given by position, by their names.
            by_name: arguments given by name.

        Raises:
            InputError: none is left.
        """
        kept = list(configs)
        if self.early_config_prune is not None:
            kept = list(self.early_config_prune(kept, by_place, **by_name))
            if not kept:
                raise InputError(
                    "asm_autotune: early_config_prune kept none of "
                    f"{len(configs)} configs; it must return at least one"
                )
        if self.perf_model is None:
            return kept
        most = self.top_k
        if isinstance(most, float):  # one at least, as in the newest Triton
            most = max(1, int(len(kept) * most))
        if len(kept) <= most:
            return kept
        model = self.perf_model
        times = [model(**by_place, **by_name, **config.all_kwargs()) for config in kept]
        order = sorted(range(len(kept)), key=times.__getitem__)
        return [kept[index] for index in order[:most]]
