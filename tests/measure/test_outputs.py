"""Which outputs are right: legitimate differences between configs pass, wrong elements do not."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from asmtune.measure.checks.compare import (
    Magnitude,
    Output,
    fill_poison,
    pieces,
    tolerance_of,
)
from asmtune.measure.checks.tensors import TensorArgument, tensor_arguments

F8, F8E5 = torch.float8_e4m3fn, torch.float8_e5m2
FLOATS = [torch.float64, torch.float32, torch.float16, torch.bfloat16, F8, F8E5]
INTEGERS = [torch.int8, torch.uint8, torch.int16, torch.int32, torch.int64, torch.bool]


def slot(tensor: Tensor) -> TensorArgument:
    """The argument that a tensor is."""
    ((found,), _) = tensor_arguments({"c": tensor})
    return found


def off(expected: Tensor, found: Tensor, *, poisoned: bool = False) -> float:
    """The largest deviation of a tensor from what is expected."""
    due = slot(expected.contiguous())
    return float(Output(slot(found.contiguous()), due.view(), poisoned=poisoned).deviation())


def tolerance(output: torch.dtype, *inputs: torch.dtype, products: tuple[str, ...] = ()) -> float:
    """The tolerance of a kernel by its dtypes."""
    made, *read = (slot(torch.zeros(1, dtype=dtype)) for dtype in (output, *inputs))
    return tolerance_of(made, read, products)


def accumulate(a: Tensor, b: Tensor, block: int) -> Tensor:
    """A product summed up block by block in 32 bits."""
    total = torch.zeros(a.shape[0], b.shape[1])
    for k in range(0, a.shape[1], block):
        total += a[:, k : k + block].float() @ b[k : k + block].float()
    return total


@pytest.fixture(scope="module")
def matrices() -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(1)
    return torch.randn(256, 2048, generator=generator), torch.randn(2048, 192, generator=generator)


@pytest.mark.slow
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_another_order_of_summation_passes(
    dtype: torch.dtype, matrices: tuple[Tensor, Tensor]
) -> None:
    """Products in other blocks, or in parts that are rounded and added, keep half the tolerance."""
    a, b = (matrix.to(dtype) for matrix in matrices)
    expected = (a.float() @ b.float()).to(dtype)
    limit = tolerance(dtype, dtype)
    for block in (16, 64, 96):
        assert 0 < off(expected, accumulate(a, b, block).to(dtype)) < limit / 2
    parts = [(a[:, n::4].float() @ b[n::4].float()).to(dtype) for n in range(4)]
    assert off(expected, parts[0] + parts[1] + parts[2] + parts[3]) < limit / 2


@pytest.mark.slow
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_one_term_too_few_is_found(dtype: torch.dtype, matrices: tuple[Tensor, Tensor]) -> None:
    """A product that forgets the last of 2048 columns is off by more than is allowed."""
    a, b = (matrix.to(dtype) for matrix in matrices)
    expected = (a.float() @ b.float()).to(dtype)
    wrong = (a[:, :-1].float() @ b[:-1].float()).to(dtype)
    assert off(expected, wrong) > tolerance(dtype, dtype)


def test_tf32_passes_where_a_product_may_round(matrices: tuple[Tensor, Tensor]) -> None:
    """Operands cut to ten bits pass if the IR has such a product, and fail if not."""
    a, b = matrices
    cut = [(matrix.view(torch.int32) & ~0x1FFF).view(torch.float32) for matrix in matrices]
    far = off(a @ b, cut[0] @ cut[1])
    assert far < tolerance(torch.float32, torch.float32, products=("tf32",)) / 2
    assert far > tolerance(torch.float32, torch.float32, products=("f32",))


def attention(tensors: list[Tensor], block: int, narrow: torch.dtype, out: torch.dtype) -> Tensor:
    """Flash attention whose weights are rounded before they multiply, as kernels do."""
    q, k, v = tensors
    scores = q @ k.T / math.sqrt(q.shape[1])
    top, total, acc = torch.full((len(q), 1), -1e30), torch.zeros(len(q), 1), torch.zeros_like(q)
    for start in range(0, len(k), block):
        part = scores[:, start : start + block]
        higher = torch.maximum(top, part.amax(1, keepdim=True))
        weights, shrink = torch.exp(part - higher), torch.exp(top - higher)
        total = total * shrink + weights.sum(1, keepdim=True)
        acc = acc * shrink + weights.to(narrow).float() @ v[start : start + block]
        top = higher
    return (acc / total).to(out)


@pytest.mark.slow
@pytest.mark.parametrize("outlier", [1.0, 100.0])
@pytest.mark.parametrize(
    ("narrow", "out", "product"),
    [
        (torch.float16, torch.float16, "f16"),
        (torch.bfloat16, torch.bfloat16, "bf16"),
        (torch.bfloat16, torch.float32, "bf16"),
        (F8, torch.bfloat16, "f8E4M3FN"),
        (F8E5, torch.float16, "f8E5M2"),
    ],
)
def test_roundings_that_change_with_the_tile_pass(
    narrow: torch.dtype, out: torch.dtype, product: str, outlier: float
) -> None:
    """Attention over other blocks passes, one channel a hundred times larger or not."""
    generator = torch.Generator().manual_seed(2)
    tensors = [torch.randn(768, 64, generator=generator).to(out).float() for _ in range(3)]
    tensors[2][:, 7] *= outlier
    expected = attention(tensors, 128, narrow, out)
    for block in (32, 256):
        far = off(expected, attention(tensors, block, narrow, out))
        assert far < 0.9 * tolerance(out, out, products=(product,))


def test_small_rows_are_held_to_their_own_size() -> None:
    """Where rows differ by six orders, an error that is small by the large ones is found."""
    generator = torch.Generator().manual_seed(5)
    rows = torch.logspace(-3, 3, 200)[:, None]
    expected = torch.randn(200, 64, generator=generator) * rows
    wrong = expected.clone()
    wrong[100] += rows[100] / 100
    assert off(expected, wrong) > tolerance(torch.float32, torch.float32)
    assert off(expected, expected + 1e-6 * rows) < tolerance(torch.float32, torch.float32)


def test_a_row_that_cancels_is_noise() -> None:
    """A row of rounding errors may differ as a whole; one of a tenth of the others may not."""
    generator = torch.Generator().manual_seed(7)
    expected = torch.randn(2000, 128, generator=generator)
    expected[0] *= 4e-5
    other = expected.clone()
    other[0] = torch.randn(128, generator=generator) * 4e-5
    allowed = tolerance(torch.float16, torch.float16)
    assert 0.0 < off(expected, other) < allowed
    expected[0] *= 0.1 / 4e-5
    other = expected.clone()
    other[0] = other[0].roll(1)
    assert off(expected, other) > allowed


@pytest.mark.parametrize("mark", [-1e30, -1e9, torch.finfo(torch.float32).min])
def test_marks_do_not_hide_what_stands_beside_them(mark: float) -> None:
    """Half of a matrix masked by a huge number does not loosen the check of the rest."""
    expected = torch.randn(64, 64, generator=torch.Generator().manual_seed(6))
    expected[torch.ones(64, 64).triu(1).bool()] = mark
    assert off(expected, expected) == 0
    wrong = expected.clone()
    wrong[40, 3] += 0.01
    assert off(expected, wrong) > tolerance(torch.float32, torch.float32)


@pytest.mark.parametrize("size", [(), (1,), (1, 1), (3, 1), (1, 40), (20, 20)])
def test_shapes_without_rows_or_columns(size: tuple[int, ...]) -> None:
    """Of any shape, the same passes and another does not; zeros allow nothing else."""
    values = torch.full(size, 2.0)
    assert off(values, values) == 0
    assert off(values, values + 0.1) == pytest.approx(0.1 / 4, rel=0.01)
    assert off(0 * values, 0 * values) == 0
    assert off(0 * values, 0 * values + 1e-20) == math.inf


def test_special_values_must_stand_where_they_are_expected() -> None:
    """NaN equals NaN of any sign and infinity its own kind; neither equals a number."""
    nan, inf = math.nan, math.inf
    expected = torch.tensor([nan, inf, -inf, 1.0, -0.0])
    assert off(expected, torch.tensor([-nan, inf, -inf, 1.0, 0.0])) == 0
    for place, value in [(0, 1.0), (0, inf), (1, nan), (1, -inf), (1, 1e38), (3, nan), (3, inf)]:
        wrong = expected.clone()
        wrong[place] = value
        assert off(expected, wrong) == inf, (place, value)


@pytest.mark.parametrize("dtype", INTEGERS)
def test_integers_are_exact(dtype: torch.dtype) -> None:
    """One step away is wrong, at the ends of the range as well."""
    least, most = (
        (0, 1) if dtype == torch.bool else (torch.iinfo(dtype).min, torch.iinfo(dtype).max)
    )
    expected = torch.tensor([least, most, 1, 0]).to(dtype)
    assert off(expected, expected) == 0
    assert tolerance(dtype, torch.float16) == 0
    for place in range(4):
        wrong = expected.clone()
        wrong[place] = most - 1 if place == 1 else int(expected[place]) + 1 if place != 2 else 0
        assert off(expected, wrong) > 0, place


@pytest.mark.parametrize("dtype", [torch.uint16, torch.uint32, torch.uint64, torch.float8_e8m0fnu])
def test_types_that_pytorch_hardly_computes_on(dtype: torch.dtype) -> None:
    """Wide unsigned integers and scales are compared as well."""
    expected = torch.tensor([1, 2, 64, 128]).to(torch.float32).to(dtype)
    wrong = torch.tensor([1, 2, 1, 128]).to(torch.float32).to(dtype)
    assert off(expected, expected) == 0
    assert off(expected, wrong) > 0


def test_tolerance_is_that_of_the_narrowest_type_at_work() -> None:
    """Inputs and products loosen what an output may be off by; integers never do."""
    assert tolerance(torch.float32) == tolerance(torch.float32, torch.float32, torch.int8)
    assert tolerance(torch.float32, torch.bfloat16) == tolerance(torch.bfloat16)
    assert tolerance(torch.float32, products=("f16",)) == tolerance(torch.float16)
    assert tolerance(torch.float32, products=("i8", "f32")) == tolerance(torch.float32)
    assert tolerance(torch.bfloat16, torch.float64) == tolerance(torch.bfloat16)


@pytest.mark.parametrize("dtype", [*FLOATS, *INTEGERS, torch.complex64, torch.float8_e4m3fnuz])
def test_poison_is_told_from_all_that_is_written(dtype: torch.dtype) -> None:
    """Poison stays poison, is no zero or one, and is found where it stands out of place."""
    expected = torch.ones(6, 6).to(dtype)
    found = expected.clone()
    fill_poison(slot(found[2:4, 1:5]))
    assert bool((found[:2] == expected[:2]).all() if dtype.itemsize > 1 else True)
    whole = torch.zeros(6, 6).to(dtype)
    fill_poison(slot(whole))
    assert off(whole, whole, poisoned=True) == 0
    assert off(expected, found, poisoned=True) == math.inf
    assert off(found, expected, poisoned=True) == math.inf
    if dtype.is_floating_point and dtype.itemsize > 1:
        # A NaN that was computed is none that was left.
        nan = torch.full((6, 6), math.nan, dtype=dtype)
        assert off(nan, whole, poisoned=True) == off(-nan, whole, poisoned=True) == math.inf
        assert bool(whole.isnan().all())


@given(st.lists(st.integers(0, 9), max_size=4), st.integers(1, 40))
def test_pieces_are_the_whole_tensor_once(shape: list[int], most: int) -> None:
    """Pieces hold so many elements at most and cover each element once."""
    seen = torch.zeros(shape)
    for piece in pieces(shape, most):
        seen[piece] += 1
        assert seen[piece].numel() <= most
    assert bool((seen == 1).all())


@settings(max_examples=40)
@given(
    st.lists(st.integers(1, 24), min_size=1, max_size=2),
    st.integers(0, 2**31),
    st.sampled_from([torch.float32, torch.float16, torch.int32]),
    st.integers(5, 500),
)
def test_a_tensor_in_pieces_is_judged_as_whole(
    shape: list[int], seed: int, dtype: torch.dtype, most: int
) -> None:
    """However few elements are looked at together, deviation and magnitude are the same."""
    generator = torch.Generator().manual_seed(seed)
    expected = (10 * torch.randn(shape, generator=generator)).to(dtype)
    found = (expected.float() + 0.1 * torch.randn(shape, generator=generator)).to(dtype)
    whole = off(expected, found), Magnitude.of(expected).mean
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("asmtune.measure.checks.compare._PIECE", most)
        parts = off(expected, found), Magnitude.of(expected).mean
    assert parts == pytest.approx(whole, rel=1e-5)


@settings(max_examples=60)
@given(
    st.integers(0, 2**31),
    st.sampled_from([*FLOATS, *INTEGERS]),
    st.sampled_from(["whole", "rows", "columns", "transposed", "steps", "diagonal"]),
)
def test_one_wrong_element_of_any_view_is_found_and_named(
    seed: int, dtype: torch.dtype, view: str
) -> None:
    """An element far from its own value is found in every layout, and no other is named."""
    views: dict[str, Callable[[Tensor], Tensor]] = {
        "whole": lambda t: t,
        "rows": lambda t: t[3:11],
        "columns": lambda t: t[:, 2:9],
        "transposed": lambda t: t.t(),
        "steps": lambda t: t[::3, ::2],
        "diagonal": lambda t: t.as_strided((20,), (21,)),
    }
    generator = torch.Generator().manual_seed(seed)
    memory = torch.randint(0, 2, (20, 20), generator=generator).to(dtype)
    argument = views[view](memory)
    place = tuple(int(torch.randint(0, size, (), generator=generator)) for size in argument.shape)
    output = Output(
        slot(argument), argument.clone(memory_format=torch.preserve_format), poisoned=False
    )
    assert float(output.deviation()) == 0
    wrong = 1 - argument.float()[place] * 1
    argument[place] = wrong.to(dtype) if dtype == torch.bool else (wrong + 40).to(dtype)
    assert float(output.deviation()) > tolerance(dtype, dtype)
    kind, detail = output.describe()
    assert kind == "wrong_output"
    assert detail.startswith(f"1 of {argument.numel():,} elements of c differ")
    assert f"most at {list(place)}: " in detail


def test_what_is_wrong_is_told_with_numbers() -> None:
    """The message has how many, which, what for what, and how far; unwritten ones are counted."""
    expected = torch.full((40, 40), 2.0)
    found = expected.clone()
    output = Output(slot(found), expected, poisoned=True)
    output.tolerance = 1e-4
    found[3, 5], found[4, 6] = 2.5, 2.25
    assert output.describe() == (
        "wrong_output",
        "2 of 1,600 elements of c differ from the default config, most at [3, 5]: 2.5 instead of "
        "2, off by 0.125 of its magnitude where 0.0001 may be; if both are right, give tolerance=",
    )
    fill_poison(slot(found[10:12]))
    kind, detail = output.describe()
    assert (kind, detail.split()[0]) == ("unwritten", "80")
    fill_poison(slot(expected[38:]))
    found[10:12] = 2.0
    found[38:] = 1.0
    kind, detail = output.describe()
    assert (kind, detail.split()[0]) == ("wrong_output", "82")
