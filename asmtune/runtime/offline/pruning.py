"""`asmtune.prune_report`: the command as a function; `asmtune.pruner`: for Triton's autotuner.

Triton and NumPy are imported inside the functions, so that importing this costs little.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from asmtune.base.errors import AsmtuneError, InputError
from asmtune.base.settings import Settings
from asmtune.core.hardware.model import Target
from asmtune.core.hardware.shipped import load_target
from asmtune.core.inputs.shapes import check_inputs
from asmtune.core.kernel_module import Shape
from asmtune.core.problem import Problem
from asmtune.runtime.offline.kernel_sources import KernelSource, load_kernel

if TYPE_CHECKING:
    from asmtune.core.config import Config
    from asmtune.core.progress import ProgressListener
    from asmtune.core.records.verdicts import PruneReport
    from asmtune.predict.score.keep import Keep
    from asmtune.predict.score.scorer import Scorer


@dataclass(frozen=True)
class PruneChoices:
    """A scorer, how many configs it keeps, and how many are compiled; None for all."""

    scorer: Scorer
    keep: Keep
    compile: Keep | None

    @classmethod
    def of(
        cls,
        scorer: str,
        keep: Keep | str | int | None,
        compile: Keep | str | int | None,  # noqa: A002
    ) -> PruneChoices:
        """Check the options of `prune_report` of these names, and fill in their defaults.

        Raises:
            InputError: one is unknown, malformed, or does not fit the scorer.
        """
        from asmtune.predict.prune.ranking import check_compile, default_budget
        from asmtune.predict.score.keep import Keep
        from asmtune.predict.score.scorers import make_scorer

        ranker = make_scorer(scorer)
        kept = Keep.default(scorer) if keep is None else Keep.of(keep)
        kept.check(scorer)
        budget = default_budget(ranker)
        if compile is not None:
            budget = None if compile == "all" else Keep.of(compile, "compile")
        if budget is not None:
            check_compile(budget, ranker)
        return cls(ranker, kept, budget)


def prune_report(
    kernel: KernelSource | Problem | Callable[..., Any],
    *arguments: Any,
    space: Any = None,
    target: str | Target = "H200",
    shape: Shape | None = None,
    dtype: str | None = None,
    axes: Mapping[str, Iterable[Any]] | None = None,
    keep: Keep | str | int | None = None,
    compile: Keep | str | int | None = None,  # noqa: A002 - the option's name
    scorer: str = "roofline",
    stored: Config | None = None,
    progress: ProgressListener | None = None,
    settings: Settings | None = None,
) -> PruneReport:
    """Compile and rank a kernel's configs for a target, as `asmtune prune-report` does.

    It needs no GPU.

    Args:
        kernel: a kernel module, by name, file or as loaded; a `Problem`, whose tensors may be
            meta tensors; or a Python function that launches one kernel.
        arguments: what the function is called with, on the target; meta tensors serve. With a
            problem, its space.
        space: a `Space`, configs, axes by name, or "auto" for one that the kernel's source
            proposes; by default the module's own, or that of the kernel's decorator.
        target: a device's name, a JSON descriptor, or a `Target`.
        shape: sizes by name; by default the module's first.
        dtype: one of the module's; by default its first.
        axes: values that replace axes of the space.
        keep: how many to keep: "auto", a number, or a share such as "5%". By default "auto" if
            the scorer's error is known, else 20.
        compile: how many to compile, chosen by a prediction before it: "all", "auto", a number
            or a share. By default "auto" if the scorer's error before compiling is known, else
            "all".
        scorer: what ranks: "learned", "roofline", "weights", "learned:FILE.npz" with trees and
            "weights:FILE.json" with points of your own, "chance", or another package's name.
        stored: a record's config, to compile, keep and mark whatever its rank.
        progress: listens to the stages.
        settings: limits and folders; by default from the environment.

    Returns:
        A verdict for each config, those to keep first.

    Raises:
        InputError: kernel, space, shape, target or an option is unknown, or they do not fit.
        CompileError: no config can run on the target; gives the commonest reason.
        StoreError: the artifacts' folder cannot be written.
    """
    machine, settings = _target(target), settings or Settings.from_environment()
    choices = PruneChoices.of(scorer, keep, compile)
    check_inputs((), dtype)
    from asmtune.core.progress import ProgressListener
    from asmtune.predict.prune.flow import Funnel
    from asmtune.predict.score.scorers import make_scorer

    if arguments and isinstance(kernel, Problem):
        (space,) = arguments
    if callable(kernel) and not isinstance(kernel, Problem):
        from asmtune.runtime.offline.host_functions import only_launch

        loaded = only_launch(kernel, arguments, machine)
        if space is not None or axes:
            found = load_kernel(loaded.problem, space or loaded.space, axes=axes)
            loaded = replace(found, notes=(*loaded.notes, *found.notes))
    else:
        loaded = load_kernel(kernel, space, shape=shape, dtype=dtype, axes=axes)
    funnel = Funnel(
        machine,
        make_scorer(scorer),
        settings,
        choices.keep,
        progress or ProgressListener(),
        compile=choices.compile,
        stored=stored,
    )
    report = funnel.prune(loaded.problem, loaded.space)
    return replace(report, notes=(*report.notes, *loaded.notes))


def _target(target: str | Target) -> Target:
    return load_target(target) if isinstance(target, str) else target


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
    from asmtune.predict.score.scorers import make_scorer

    if type(top_k) is not int or top_k < 1:
        raise InputError(f"pruner: top_k is {top_k!r}; expected a whole number above 0")
    make_scorer(scorer)
    machine = None if target is None else _target(target)
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
    from asmtune.core.config import Config
    from asmtune.core.space.space import Space
    from asmtune.predict.prune.flow import Funnel
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
