"""`asmtune.pruner`: machine code read for a program that tunes with Triton's own autotuner."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from asmtune.base.errors import AsmtuneError, InputError

if TYPE_CHECKING:
    from asmtune.core.hardware.model import Target


class PrunerWarning(UserWarning):
    """Configs could not be pruned; Triton times all of them."""


def pruner(
    top_k: int = 10, target: str | Target | None = None, scorer: str = "roofline"
) -> Callable[..., list[Any]]:
    """Make an `early_config_prune` of `triton.autotune`, which keeps the configs worth timing.

    The configs are compiled in parallel, as far as their sketches rank high, and ranked by their
    assembly. Those that are kept are in Triton's cache then, so that it does not compile them
    again.

        @triton.autotune(configs, key=["n"],
                         prune_configs_by={"early_config_prune": asmtune.pruner()})

    It never raises into the program: where it cannot judge, it warns once and keeps all configs.

    Args:
        top_k: how many configs to keep.
        target: a device's name, a JSON descriptor, or a `Target`; by default the GPU at hand.
        scorer: what ranks, as for `prune_report`.

    Raises:
        InputError: `top_k` is not a number above 0, or target or scorer is unknown.
    """
    from asmtune.core.hardware.shipped import load_target
    from asmtune.predict.score.scorers import make_scorer

    if type(top_k) is not int or top_k < 1:
        raise InputError(f"pruner: top_k is {top_k!r}; expected a whole number above 0")
    make_scorer(scorer)
    machine = load_target(target) if isinstance(target, str) else target
    warned: list[str] = []

    def early_config_prune(
        configs: Sequence[Any], arguments: Mapping[str, Any], **keywords: Any
    ) -> list[Any]:
        from asmtune.core.failures import guarded
        from asmtune.core.records.artifacts import Failure
        from asmtune.triton_api.autotuners import pruning_autotuner
        from asmtune.triton_api.user_state import outside

        if len(configs) <= top_k:
            return list(configs)
        kernel, launch = pruning_autotuner(early_config_prune), {**arguments, **keywords}
        try:
            with outside():
                kept = guarded(
                    "pruner", lambda: _kept(kernel, configs, launch, machine, top_k, scorer)
                )
        except AsmtuneError as error:
            kept = Failure("pruner", "input", str(error))
        if not isinstance(kept, Failure):
            return kept
        if not warned:
            warned.append(kept.detail)
            text = f"asmtune.pruner keeps all {len(configs)} configs: {kept.detail.splitlines()[0]}"
            warnings.warn(text, PrunerWarning, stacklevel=2)
        return list(configs)

    return early_config_prune


def _kept(
    autotuner: Any,
    configs: Sequence[Any],
    values: dict[str, Any],
    target: Target | None,
    top_k: int,
    scorer: str,
) -> list[Any]:
    """Return the configs that rank best, and put their code into Triton's cache.

    Raises:
        AsmtuneError: the launch cannot be judged.
    """
    from asmtune.base.settings import Settings
    from asmtune.core.config import Config
    from asmtune.core.problem import Problem
    from asmtune.core.space.space import Space
    from asmtune.predict.prune.flow import Funnel
    from asmtune.runtime.offline.pruning import PruneChoices
    from asmtune.runtime.offline.tuning_queue import target_here

    if autotuner is None:
        raise InputError("it is not called by triton.autotune, as prune_configs_by")
    grid = values.pop("grid", (1,))
    values.pop("warmup", None)
    kernel, choices = autotuner.fn, PruneChoices.of(scorer, top_k, None)
    problem = Problem.of_launch(kernel, values, grid)
    machine = target_here() if target is None else target
    funnel = Funnel(
        machine,
        choices.scorer,
        Settings.from_environment(),
        choices.keep,
        compile=choices.compile,
    )
    report = funnel.prune(problem, Space.from_configs(configs))
    front = funnel.front(problem)
    own = {Config.of(config): config for config in reversed(configs)}
    best = sorted((v for v in report.verdicts if v.rank is not None), key=lambda v: v.rank or 0)
    for verdict in best[:top_k]:
        if target is None:
            front.hand_to_triton(verdict.config)
    return [own[verdict.config] for verdict in best[:top_k]]
