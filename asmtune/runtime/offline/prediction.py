"""`asmtune.predict`: the configs of a launch by predicted time, with nothing timed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple

from asmtune.base.errors import ArgumentTypeError, InputError
from asmtune.base.settings import Settings
from asmtune.base.text import shortened
from asmtune.core.config import Config
from asmtune.core.hardware.model import Target
from asmtune.core.hardware.shipped import load_target
from asmtune.core.problem import Grid, Problem
from asmtune.core.space.space import Space
from asmtune.triton_api.jit_functions import is_kernel

if TYPE_CHECKING:
    from asmtune.predict.prune.flow import Funnel


class Prediction(NamedTuple):
    """A config, and the microseconds that a launch of it is predicted to take."""

    config: Config
    us: float


def predict(
    kernel: Any,
    arguments: Mapping[str, Any] | Sequence[Any],
    grid: Grid,
    *,
    space: Any = None,
    target: str | Target | None = None,
) -> list[Prediction]:
    """Rank the configs of a launch, as `on_miss="predict"` does; nothing is launched or timed.

        asmtune.predict(add, (x, y, out, n), grid)[0].config

    The first launch of a kernel lowers its configs, for seconds. Another size is ranked faster: 660
    configs whose tiles were met take 0.4 s.

    Args:
        kernel: what `@asm_autotune` made, or a `@triton.jit` function with a `space`.
        arguments: of the launch by name or by position; meta tensors serve.
        grid: as in `kernel[grid]`.
        space: a `Space`, configs, or axes by name; by default the decorated kernel's own.
        target: a device's name, a JSON descriptor, or a `Target`; by default the GPU at hand.

    Returns:
        The configs that can run, as far as they are known, best first. The scorer ranks, the
        microseconds are the roofline's, so that they need not rise.

    Raises:
        InputError: kernel, arguments, space or target do not fit.
        CompileError: no config can run on the target.
    """
    from asmtune.core.ir_overrides import unedited
    from asmtune.predict.prune.picking import pick_report
    from asmtune.runtime.autotuner import AsmAutotuner
    from asmtune.runtime.offline.tuning_queue import target_here

    if not (isinstance(kernel, AsmAutotuner) or is_kernel(kernel)):
        raise ArgumentTypeError(
            f"predict: {shortened(repr(kernel))} is no kernel: give what @asm_autotune made, or a "
            "@triton.jit function with space="
        )
    machine = load_target(target) if isinstance(target, str) else target or target_here()
    values = _by_name(kernel, arguments)
    if space is None and isinstance(kernel, AsmAutotuner):
        request = kernel.request({}, values, grid, machine.name)
        problem, own = request.problem, request.space
    elif space is not None:
        own = Space.of(space)
        plain = kernel.fn if isinstance(kernel, AsmAutotuner) else kernel
        problem = Problem.of_launch(plain, values, grid)
    else:
        raise InputError(f"predict: {kernel.__name__} has no space of its own: give space=")
    funnel = _funnel(machine, Settings.from_environment())
    verdicts = pick_report(funnel, problem, unedited(own)).verdicts
    able = (v for v in verdicts if v.kept or v.dropped_at in ("sketch", "estimate", "score"))
    return [Prediction(v.config, v.predicted_us) for v in able if v.predicted_us is not None]


def _by_name(kernel: Any, arguments: Mapping[str, Any] | Sequence[Any]) -> dict[str, Any]:
    """Return a launch's arguments by name.

    Raises:
        InputError: there are more than the kernel has parameters.
    """
    if isinstance(arguments, Mapping):
        return dict(arguments)
    names = list(kernel.arg_names)
    if len(arguments) > len(names):
        raise InputError(
            f"predict: {len(arguments)} arguments, and {kernel.__name__} has {len(names)} "
            f"parameters: {', '.join(names)}"
        )
    return dict(zip(names, arguments, strict=False))


@cache
def _funnel(target: Target, settings: Settings) -> Funnel:
    """Return the funnel of a target, which keeps what it has met."""
    from asmtune.predict.prune.flow import Funnel
    from asmtune.predict.score.scorers import make_scorer

    return Funnel(target, make_scorer("learned"), settings)
