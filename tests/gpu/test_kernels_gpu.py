"""The accuracy check of every kernel on a GPU, on the same cases as under the interpreter."""

from __future__ import annotations

import pytest
import torch

from asmtune.workshop.kernel_checks.tolerances import excess
from tests.kernels.accuracy import (
    KERNELS,
    case_of,
    differences,
    extras,
    launched_with,
    module_of,
    parts,
)

LONGEST_FIRST = sorted(KERNELS, key=lambda name: not case_of(name).is_parted)
CASES = [
    (name, dtype, part)
    for name in LONGEST_FIRST
    for dtype in module_of(name).DTYPES
    for part in range(len(parts(name)))
]
EXTRAS = [(name, part) for name in LONGEST_FIRST for part in range(len(case_of(name).extras))]


@pytest.mark.parametrize(("name", "dtype", "part"), CASES)
def test_small_cases(name: str, dtype: str, part: int) -> None:
    """Every shape, config, layout, value and gradient of the case is within its tolerance."""
    found = differences(name, dtype, "cuda", part)
    assert {what: error for what, error in found.items() if not error <= 1} == {}


@pytest.mark.parametrize(("name", "part"), EXTRAS)
def test_extras(name: str, part: int) -> None:
    """What a case compares besides holds on a GPU as well."""
    found = extras(name, "cuda", part)
    assert {what: error for what, error in found.items() if not error <= 1} == {}


@pytest.mark.parametrize("name", KERNELS)
def test_shapes_of_the_module(name: str) -> None:
    """The shapes that a kernel is tuned for are right with its default config, at their size."""
    module, case = module_of(name), case_of(name)
    for shape in module.SHAPES:
        problem = module.problem(shape, module.DTYPES[0], "cuda")
        with launched_with(module.DEFAULT, name):
            module._tuned[problem.grid](**problem.arguments)
        wanted = module.reference(problem.arguments)
        exact = (wanted,) if isinstance(wanted, torch.Tensor) else wanted
        for output, want in zip(module.OUTPUTS, exact, strict=True):
            assert (
                excess(problem.arguments[output], want, case.rows("cuda", module.DTYPES[0])) <= 1
            ), (shape, output)
        del problem, wanted, exact


@pytest.mark.parametrize("name", ["layernorm_backward", "rmsnorm_backward"])
def test_sums_repeat(name: str) -> None:
    """Two runs of a backward pass give the same bits: no sum's order is left to chance."""
    module = module_of(name)
    inputs = module.inputs({"rows": 1151, "cols": 1000}, "bf16", "cuda")
    public = getattr(module, name)
    with launched_with(module.DEFAULT, name):
        first, second = public(**inputs), public(**inputs)
    assert all(torch.equal(a, b) for a, b in zip(first, second, strict=True))
