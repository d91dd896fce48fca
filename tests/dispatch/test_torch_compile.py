"""Autotuned kernels under `torch.compile`: real tracing and lowering, launches done on the host."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
import triton
from torch._higher_order_ops.triton_kernel_wrap import kernel_side_table

from asmtune.core.config import Config
from asmtune.core.space.space import Space
from asmtune.runtime.autotuner import AsmAutotuner
from asmtune.runtime.decorator import asm_autotune
from asmtune.runtime.events import UntunedWarning
from asmtune.runtime.patching.redirect import patch
from tests.dispatch import torch_kernels
from tests.dispatch.torch_support import Imagined

SPACE = Space({"BLOCK": [32, 64, 128], "num_warps": [4, 8]}, default=Config({"BLOCK": 64}))


def decorated(kernel: Any = torch_kernels.add, **options: Any) -> AsmAutotuner:
    """`add` as a new process would have it."""
    return asm_autotune(**{"space": SPACE, "key": ["n"], "skip_tuning_below_us": None, **options})(
        kernel
    )


def adder(kernel: Any) -> Callable[[torch.Tensor, torch.Tensor], torch.Tensor]:
    """A function that launches a kernel among PyTorch's own operations."""

    def add(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        out, n = torch.empty_like(x), x.numel()
        kernel[lambda meta: (triton.cdiv(n, meta["BLOCK"]),)](x + 1, y, out, n)
        return out * 2

    return add


def check(function: Callable[..., torch.Tensor], *sizes: int, device: str = "cpu") -> None:
    """Call it with vectors of these sizes; the results are right."""
    for n in sizes:
        x, y = torch.randn(2, n, device=device)
        torch.testing.assert_close(function(x, y), (x + 1 + y) * 2)


def compiled(kernel: Any, **options: Any) -> Callable[[torch.Tensor, torch.Tensor], torch.Tensor]:
    """`adder` through Dynamo, functionalisation and the partitioner."""
    options = {"backend": "aot_eager", "fullgraph": True, **options}
    return torch.compile(adder(kernel), **options)


def test_a_tuned_config_is_traced(machine: Imagined) -> None:
    """The graph launches what was tuned before, from memory or the store, and tunes nothing."""
    kernel = decorated()
    check(adder(kernel), 1000)
    other = decorated()
    with warnings.catch_warnings():
        warnings.simplefilter("error", UntunedWarning)
        check(compiled(kernel), 1000, 1000)
        check(compiled(other), 1000)
    assert len(machine.tuned) == 1
    assert [(made["BLOCK"], made["num_warps"]) for made in machine.launches] == [(128, 8)] * 4


def test_an_unknown_key_is_told_and_not_tuned(machine: Imagined) -> None:
    """What nobody tuned runs with the fallback's config; one warning says what to do."""
    kernel = decorated(fallback=Config({"BLOCK": 32}))
    graphs = [compiled(kernel, dynamic=False), compiled(kernel, dynamic=False)]
    with pytest.warns(UntunedWarning) as seen:
        check(lambda x, y: (graphs[0](x, y) + graphs[1](x, y)) / 2, 1000, 1000)
    (text,) = [str(warning.message) for warning in seen if warning.category is UntunedWarning]
    assert f"{torch_kernels.__name__}.add at n=1000, x_ptr fp32" in text
    assert "set_stance('force_eager')" in text
    assert text.endswith("goes on with BLOCK=32 num_warps=4 num_stages=3")
    assert machine.tuned == []
    assert {made["BLOCK"] for made in machine.launches} == {32}


def test_dynamic_sizes_compile_once(machine: Imagined) -> None:
    """A dynamic size goes by its first value's config and is no reason to compile again."""
    kernel = decorated()
    check(adder(kernel), 1000)
    graphs: list[torch.fx.GraphModule] = []

    def backend(graph: torch.fx.GraphModule, _: Any) -> Any:
        graphs.append(graph)
        return graph

    check(compiled(kernel, dynamic=True, backend=backend), 1000, 2000, 3333)
    assert len(graphs) == 1
    assert [made["BLOCK"] for made in machine.launches] == [128] * 4
    (node,) = [node for node in graphs[0].graph.nodes if "kernel_idx" in node.kwargs]
    traced = kernel_side_table.get_kernel(node.kwargs["kernel_idx"])
    assert [config.kwargs for config in traced.configs] == [{"BLOCK": 128}]


def test_heuristics_below_follow_the_traced_config(machine: Imagined) -> None:
    """`@triton.heuristics` underneath see the tuned values of each size that is traced."""
    inner = triton.heuristics({"EVEN": lambda values: values["n"] % values["BLOCK"] == 0})
    kernel = decorated(inner(torch_kernels.add_even))
    check(adder(kernel), 1024)
    check(adder(kernel), 1025)
    check(compiled(kernel, dynamic=False), 1024, 1025, 1024)
    assert [made["EVEN"] for made in machine.launches] == [True, False, True, False, True]


CAPPED = Config({"BLOCK": 128}, num_warps=8, maxnreg=64)


def test_an_option_that_inductor_drops(machine: Imagined) -> None:
    """The graph has the fastest timed config without it, with one warning."""
    machine.winner = CAPPED
    machine.others = [Config({"BLOCK": 128}, num_ctas=2), Config({"BLOCK": 32}, num_warps=8)]
    kernel = decorated(space=Space({"BLOCK": [32, 64, 128], "num_warps": [4, 8]}))
    check(adder(kernel), 1000)
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always", UntunedWarning)
        for _ in range(2):
            torch.compiler.reset()
            traced = configs_traced(kernel, 1000)
    told = [str(one.message) for one in seen if one.category is UntunedWarning]
    assert traced == [{"BLOCK": 32}]
    assert len(told) == 1
    assert "in the place of BLOCK=128 num_warps=8 num_stages=3 maxnreg=64" in told[0]


def configs_traced(kernel: Any, n: int) -> list[dict[str, Any]]:
    """The values of the configs that PyTorch holds for the launch of a graph."""
    found: list[dict[str, Any]] = []

    def backend(graph: torch.fx.GraphModule, _: Any) -> Any:
        (node,) = [node for node in graph.graph.nodes if "kernel_idx" in node.kwargs]
        traced = kernel_side_table.get_kernel(node.kwargs["kernel_idx"])
        found.extend(config.kwargs for config in traced.configs)
        return lambda x, *_: (x,)

    torch.compile(adder(kernel), backend=backend, fullgraph=True, dynamic=False)(*torch.randn(2, n))
    return found


LIST = [triton.Config({"BLOCK": 32}), triton.Config({"BLOCK": 128}, num_warps=8)]


@pytest.mark.parametrize("restored", [False, True])
def test_a_patched_program(machine: Imagined, restored: bool) -> None:
    """Under `patch()` a tuned key is traced alone; of another one Inductor may time the list.

    Not where arguments have to be put right between timings, which PyTorch does not do then.
    """
    options = {"restore_value": ["out_ptr"]} if restored else {}
    with patch(skip_tuning_below_us=None):
        kernel = triton.autotune(LIST, key=["n"], **options)(torch_kernels.add)
        check(adder(kernel), 1000)
        assert configs_traced(kernel, 1000) == [{"BLOCK": 128}]
        torch.compiler.reset()
        listed = [{"BLOCK": 32}] if restored else [{"BLOCK": 32}, {"BLOCK": 128}]
        with warnings.catch_warnings(record=True) as seen:
            warnings.simplefilter("always", UntunedWarning)
            assert configs_traced(kernel, 2000) == listed
        told = [warning.category for warning in seen].count(UntunedWarning)
        assert told == (1 if restored else 0)
        check(compiled(kernel), 1000)
    assert len(machine.tuned) == 1
