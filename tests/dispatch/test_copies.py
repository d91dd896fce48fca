"""Copies of arguments: what a kernel could tell apart stays as it was."""

from __future__ import annotations

import pytest
import torch
import triton
import triton.language as tl
from hypothesis import given
from hypothesis import strategies as st
from triton.tools.tensor_descriptor import TensorDescriptor

from asmtune.runtime.misses.background import copy_arguments

DTYPES = (torch.float32, torch.float16, torch.int8, torch.int64, torch.bool)


@given(
    dtype=st.sampled_from(DTYPES),
    start=st.integers(0, 40),
    rows=st.integers(1, 5),
    cols=st.integers(1, 7),
    step=st.integers(1, 3),
)
def test_a_view_stays_the_same_view(
    dtype: torch.dtype, start: int, rows: int, cols: int, step: int
) -> None:
    """Contents, shape, strides and alignment of any view are those of the original."""
    base = torch.arange(200).to(dtype)
    view = torch.as_strided(base, (rows, cols), (cols * step, step), start)
    made = copy_arguments({"x": view, "n": 3})["x"]
    assert torch.equal(made, view)
    assert (made.shape, made.stride(), made.dtype) == (view.shape, view.stride(), view.dtype)
    assert made.data_ptr() % 512 == view.data_ptr() % 512
    assert made.data_ptr() != view.data_ptr()
    made.zero_()
    assert torch.equal(base, torch.arange(200).to(dtype))


@given(first=st.integers(0, 20), second=st.integers(0, 20))
def test_views_of_one_storage_share_a_copy(first: int, second: int) -> None:
    """What a kernel writes through one argument it reads through the other, as before."""
    base = torch.zeros(64)
    made = copy_arguments({"x": base[first : first + 8], "y": base[second : second + 8]})
    assert made["y"].data_ptr() - made["x"].data_ptr() == 4 * (second - first)
    made["x"].fill_(1.0)
    assert float(made["y"].sum()) == max(0, 8 - abs(first - second))


def test_descriptors_wrappers_and_tuples() -> None:
    """Tensors inside what Triton takes are copied too; the wrapping stays."""
    base = torch.ones(16, 16, dtype=torch.float16)
    made = copy_arguments(
        {
            "desc": TensorDescriptor.from_tensor(base, [16, 16]),
            "cast": triton.reinterpret(torch.ones(8, dtype=torch.int8), tl.float8e5),
            "pair": (base, 3),
        }
    )
    assert type(made["desc"]) is TensorDescriptor
    assert made["desc"].block_shape == [16, 16]
    assert made["cast"].dtype == tl.float8e5
    assert made["pair"][1] == 3
    assert made["desc"].base.data_ptr() == made["pair"][0].data_ptr() != base.data_ptr()


@pytest.mark.parametrize("value", [None, 3, 2.5, "text", tl.constexpr(4), tl.float16, object()])
def test_what_has_no_memory_is_itself(value: object) -> None:
    """Numbers, constexprs and what is not known are handed on as they are."""
    assert copy_arguments({"value": value})["value"] is value
