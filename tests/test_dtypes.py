"""Names of dtypes, against Triton's and PyTorch's own."""

from __future__ import annotations

import re

import pytest
import torch
import triton
import triton.language as tl
from triton.tools.tensor_descriptor import TensorDescriptor

from asmtune.base.errors import ProblemError
from asmtune.core.dtypes import TORCH_NAMES, canonical_dtype, dtype_name, dtype_of, torch_dtype


@pytest.mark.parametrize("name", TORCH_NAMES)
def test_every_spelling_of_a_dtype(name: str) -> None:
    """Triton's name and PyTorch's, with and without their prefixes, mean the same."""
    torch_name = TORCH_NAMES[name]
    spellings = (name, torch_name, f"torch.{torch_name}", f"tl.{torch_name}")
    assert {canonical_dtype(text) for text in spellings} == {name}
    assert torch_dtype(name) is getattr(torch, torch_name)
    assert str(torch_dtype(name)) == f"torch.{torch_name}"


# Triton calls a pointer to bool both i1 and u1.
@pytest.mark.parametrize("name", [name for name in TORCH_NAMES if name != "i1"])
def test_canonical_name_is_what_triton_derives(name: str) -> None:
    """The launcher's type of a pointer to a torch tensor is the canonical name."""
    tensor = torch.empty(1, dtype=torch_dtype(name), device="meta")
    derived = triton.runtime.jit.mangle_type(tensor)
    assert derived.lstrip("*") == dtype_of(tensor)
    assert dtype_of(tensor) == name


@pytest.mark.parametrize("name", TORCH_NAMES)
def test_a_dtype_has_a_name(name: str) -> None:
    """A dtype of PyTorch's has its canonical name; what is no dtype has none."""
    dtype = torch_dtype(name)
    assert dtype_name(dtype) == name
    assert dtype_name(torch.empty(1, dtype=dtype)) is None
    assert dtype_name(name) is None
    assert dtype_name(tl.bfloat16) == "bf16"


@pytest.mark.parametrize(
    ("word", "name"),
    [
        ("half", "fp16"),
        ("float", "fp32"),
        ("double", "fp64"),
        ("int", "i32"),
        ("long", "i64"),
        ("fp8", "fp8e4nv"),
    ],
)
def test_everyday_words(word: str, name: str) -> None:
    """PyTorch's short words mean what PyTorch means by them."""
    assert canonical_dtype(word) == name
    if word != "fp8":
        assert torch_dtype(word) is getattr(torch, word)


def test_unknown_dtype_suggests_the_nearest() -> None:
    """A typing error gives the list and the nearest name."""
    with pytest.raises(ProblemError) as caught:
        canonical_dtype("flot16")
    message = str(caught.value)
    assert message.startswith("unknown dtype 'flot16': one of fp64, fp32, fp16, bf16")
    assert message.endswith("did you mean float16?")
    with pytest.raises(ProblemError, match=re.escape("unknown dtype 'torch.zzz'")):
        torch_dtype("torch.zzz")


def test_views_of_tensors() -> None:
    """A descriptor has its tensor's dtype, a reinterpreted tensor the one it is read as."""
    tensor = torch.zeros(16, 16, dtype=torch.bfloat16)
    assert dtype_of(TensorDescriptor.from_tensor(tensor, [16, 16])) == "bf16"
    as_fp8 = triton.reinterpret(torch.zeros(16, dtype=torch.int8), tl.float8e5)
    assert dtype_of(as_fp8) == "fp8e5"
