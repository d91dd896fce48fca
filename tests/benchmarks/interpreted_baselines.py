"""Each untuned kernel on small shapes against float64, for Triton's interpreter."""

from __future__ import annotations

from asmtune.workshop.kernel_checks.tolerances import excess
from benchmarks.aibench8.baselines import baseline_of, exact
from benchmarks.aibench8.tasks import TASKS, Task
from tests.kernels.accuracy import case_of

TWICE = {
    "layernorm": {"rows": 3, "cols": 2500},
    "rope": {"seq": 3, "batch": 2, "heads": 2, "dim": 150},
}
"""Shapes over which a program loops more than once."""


def errors() -> dict[str, float]:
    """Return the largest error by what is allowed, by kernel and shape."""
    found = {}
    for name, task in TASKS.items():
        more = [TWICE[name]] if name in TWICE else []
        for shape in (*case_of(name).shapes[:2], *more):
            found[f"{name} {dict(shape)}"] = _error(Task(name, shape, task.dtype))
    return found


def _error(task: Task) -> float:
    module, inputs = baseline_of(task.name), task.inputs("cpu")
    problem = module.problem(inputs)
    for output in module.OUTPUTS:
        problem.arguments[output].fill_(0)
    wanted, worst = exact(task, inputs), 0.0
    for config in module.CONFIGS:
        problem.kernel[problem.grid](**problem.arguments, **config.all_kwargs())
        got = [problem.arguments[output] for output in module.OUTPUTS]
        worst = max(worst, *(excess(a, b) for a, b in zip(got, wanted, strict=True)))
    return min(worst, 1e300)
