"""`asmtune.roofline`: the command as a function."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from asmtune.base.errors import CompileError
from asmtune.base.settings import Settings
from asmtune.core.hardware.model import Target
from asmtune.core.hardware.shipped import load_target
from asmtune.core.inputs.shapes import ShapeSource, check_inputs
from asmtune.runtime.offline.kernel_sources import KernelSource, LoadedKernel, listed

if TYPE_CHECKING:
    from asmtune.core.progress import ProgressListener
    from asmtune.workshop.roofline.chart import Chart


def roofline(
    kernels: KernelSource | LoadedKernel | Sequence[KernelSource | LoadedKernel],
    *,
    target: str | Target = "H200",
    shapes: Sequence[ShapeSource] = (),
    dtype: str | None = None,
    scorer: str = "roofline",
    progress: ProgressListener | None = None,
    settings: Settings | None = None,
) -> Chart:
    """Put kernels under a target's roofs, before tuning and after, as `asmtune roofline` does.

    It needs no GPU. Before tuning is the space's default config. After tuning
    is the stored config that a launch would take, or else the model's first pick.

    Args:
        kernels: kernel modules, by name, file or as loaded; or `LoadedKernel`, a problem with
            its space, whose pick is the model's.
        target: a device's name, a JSON descriptor, or a `Target`.
        shapes: mappings such as `{"M": 4096}`, texts such as "M=4096", or paths of files of
            shapes; each goes to the kernels that have its dimensions. By default each kernel's
            first.
        dtype: one of the kernels'; by default their first.
        scorer: what picks a config if none is stored.
        progress: listens to the stages.
        settings: limits and folders; by default from the environment.

    Returns:
        The launches with their points; those that have none are in `failures`.

    Raises:
        InputError: a kernel, shape, dtype or target is unknown.
        CompileError: no launch has a point; gives the first reason.
    """
    from asmtune.predict.score.scorers import make_scorer

    machine = load_target(target) if isinstance(target, str) else target
    settings = settings or Settings.from_environment()
    chooser = make_scorer(scorer)
    check_inputs(listed(shapes), dtype)
    from asmtune.core.progress import ProgressListener
    from asmtune.predict.prune.flow import Funnel
    from asmtune.workshop.roofline.subjects import RooflineRequest
    from asmtune.workshop.roofline.survey import Survey

    request = RooflineRequest(listed(kernels), listed(shapes), dtype)
    subjects = request.subjects(machine, settings)
    funnel = Funnel(machine, chooser, settings, progress=progress or ProgressListener())
    chart = Survey(funnel).chart(subjects)
    if not chart.entries:
        raise CompileError("; ".join(f"{name}: {why}" for name, why in chart.failures[:1]))
    return chart
