"""The vendors' functions that public functions name as alternatives."""

from __future__ import annotations

import inspect
from typing import Any

import pytest
import torch

from asmtune.core.alternatives import call_of
from tests.kernels.accuracy import KERNELS, as_tuple, case_of, module_of
from tests.kernels.tolerances import excess

WITH_VENDOR = [name for name in KERNELS if hasattr(module_of(name), "_alone")]
ON_HOST = [name for name in WITH_VENDOR if name != "attention"]


@pytest.mark.parametrize("name", WITH_VENDOR)
def test_vendors_have_one_name_and_one_interface(name: str) -> None:
    """A winner's name stands for a launch and for the whole function, of the same arguments."""
    module = module_of(name)
    public = getattr(module, name)
    assert inspect.signature(public).parameters["vendor"].default is True
    launched = module._tuned.options.choices["alternatives"]
    assert launched.keys() == public.prepared.alternatives.keys()
    assert "alternatives" not in module._alone.options.choices
    assert module._alone.options.key == module._tuned.options.key


@pytest.mark.parametrize("name", ON_HOST)
def test_vendors_write_what_the_kernel_writes(name: str) -> None:
    """Called with a launch's arguments, each writes the kernel's outputs."""
    torch.manual_seed(0)
    module = module_of(name)
    for shape in case_of(name).shapes[:2]:
        problem = module.problem(shape, "fp32", "cpu")
        for output in module.OUTPUTS:
            problem.arguments[output].fill_(float("nan"))
        for function in module._tuned.options.choices["alternatives"].values():
            call_of(function, module.kernel.arg_names, problem.arguments)()
        for output, want in zip(
            module.OUTPUTS, as_tuple(module.reference(problem.arguments)), strict=True
        ):
            assert excess(problem.arguments[output], want, {}) <= 1, (shape, output)


@pytest.mark.parametrize("name", ON_HOST)
def test_vendors_return_what_the_function_returns(name: str) -> None:
    """Called as the public function is, each gives its result, for every further argument."""
    torch.manual_seed(0)
    module, case = module_of(name), case_of(name)
    for function in getattr(module, name).prepared.alternatives.values():
        for more in ({}, *case.keywords):
            given: dict[str, Any] = {**module.inputs(case.shapes[0], "fp32", "cpu"), **more}
            want = module.baseline(**given)
            assert excess(function(**given), want.double(), {}) <= 1, more
            assert excess(function(**given, vendor=True), want.double(), {}) <= 1


def test_attention_asks_the_vendor_for_what_it_computes_alone() -> None:
    """Windows, padding, masks, dropout, shared key heads and oblong diagonals are ours."""
    module = module_of("attention")
    q, k = torch.zeros(1, 4, 8, 16), torch.zeros(1, 2, 8, 16)
    how = module.Attending
    assert module._has_vendor(q, q, how(causal=True))
    assert module._has_vendor(q, q[:, :, :4], how())
    assert not module._has_vendor(q, q[:, :, :4], how(causal=True))
    assert not module._has_vendor(q, k, how())
    masks: list[dict[str, Any]] = [{"window": 2}, {"window": (None, 3)}, {"dropout": 0.1}]
    for options in (*masks, {"padding": torch.ones(1)}, {"mask": torch.ones(1)}):
        assert not module._has_vendor(q, q, how(**options))
