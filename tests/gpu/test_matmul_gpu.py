"""The matrix product's variants on a GPU: layouts, sums in parts, streams, graphs, large copies."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from asmtune.core.config import Config
from asmtune.kernels import matmul
from asmtune.triton_api.launching import allocating
from asmtune.workshop.kernel_checks.tolerances import excess
from tests.kernels.accuracy import launched_with
from tests.kernels.interpreted_matmul import LAYOUTS, errors

TILE = {"BLOCK_M": 64, "BLOCK_N": 64, "BLOCK_K": 64, "GROUP_M": 8}
SPLIT = Config({"LOADS": "pointers", "PERSISTENT": False, "SPLIT_K": 8, **TILE})


@pytest.mark.parametrize("dtype", matmul.DTYPES)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_variants(layout: str, dtype: str) -> None:
    """Every variant is right on every layout and dtype, twice in a row."""
    torch.manual_seed(0)
    with torch.no_grad(), allocating():
        found = errors(dtype, layout, "cuda", TILE)
    assert len(found) >= 4
    assert {name: one for name, one in found.items() if not one[0] <= 1 or one[1]} == {}


def long_sum() -> tuple[dict[str, Any], torch.Tensor]:
    """Operands whose sum is worth splitting, and their product."""
    torch.manual_seed(1)
    a = torch.randn(128, 8192, device="cuda", dtype=torch.float16)
    b = torch.randn(8192, 128, device="cuda", dtype=torch.float16)
    return {"a": a, "b": b}, a.double() @ b.double()


def test_split_sums_repeat() -> None:
    """However the parts come in, two runs give the same bits."""
    given, wanted = long_sum()
    with torch.no_grad(), launched_with(SPLIT, "matmul"):
        first = matmul.matmul(**given)
        assert excess(first, wanted) <= 1
        assert all(torch.equal(matmul.matmul(**given), first) for _ in range(200))


def test_two_streams_at_once() -> None:
    """Split sums on two streams have memory of their own, and do not mix."""
    given, wanted = long_sum()
    others = {name: -2 * value for name, value in given.items()}
    streams = torch.cuda.Stream(), torch.cuda.Stream()
    with torch.no_grad(), launched_with(SPLIT, "matmul"):
        matmul.matmul(**given)
        torch.cuda.synchronize()
        results: list[list[torch.Tensor]] = [[], []]
        for _ in range(100):
            for place, operands in enumerate((given, others)):
                with torch.cuda.stream(streams[place]):
                    results[place].append(matmul.matmul(**operands))
        torch.cuda.synchronize()
    assert all(excess(c, wanted) <= 1 for c in results[0])
    assert all(excess(c, 4 * wanted) <= 1 for c in results[1])


def test_in_a_graph() -> None:
    """A captured split product is right at each replay, beside eager ones."""
    given, wanted = long_sum()
    with torch.no_grad(), launched_with(SPLIT, "matmul"):
        matmul.matmul(**given)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            captured = matmul.matmul(**given)
        for _ in range(20):
            captured.zero_()
            graph.replay()
            eager = matmul.matmul(**given)
            torch.cuda.synchronize()
            assert excess(captured, wanted) <= 1
            assert excess(eager, wanted) <= 1
