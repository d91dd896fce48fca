"""Names of dtypes, against Triton's and PyTorch's own."""

from __future__ import annotations

import pytest
import torch
import triton
import triton.language as tl
from triton.tools.tensor_descriptor import TensorDescriptor

from asmtune.base.errors import ProblemError
from asmtune.core.dtypes import TORCH_NAMES, canonical_dtype, dtype_name, dtype_of, torch_dtype


def test_names_of_dtypes() -> None:
    """Triton's and PyTorch's names mean the same, and are what the launcher makes of a tensor."""
    for name, torch_name in TORCH_NAMES.items():
        spellings = (name, torch_name, f"torch.{torch_name}", f"tl.{torch_name}")
        assert {canonical_dtype(text) for text in spellings} == {name}
        dtype = torch_dtype(name)
        assert dtype is getattr(torch, torch_name)
        assert (dtype_name(dtype), dtype_name(name)) == (name, None)
        tensor = torch.empty(1, dtype=dtype, device="meta")
        assert (dtype_of(tensor), dtype_name(tensor)) == (name, None)
        if name != "i1":  # Triton calls a pointer to bool both i1 and u1
            assert triton.runtime.jit.mangle_type(tensor).lstrip("*") == name
    assert dtype_name(tl.bfloat16) == "bf16"


def test_everyday_words() -> None:
    """PyTorch's short words mean what PyTorch means by them."""
    for word in ("half", "float", "double", "int", "long"):
        assert torch_dtype(word) is getattr(torch, word)
    assert canonical_dtype("fp8") == "fp8e4nv"


def test_unknown_dtype_suggests_the_nearest() -> None:
    """A typing error gives the nearest name."""
    with pytest.raises(ProblemError, match=r"unknown dtype 'flot16'.*did you mean float16\?"):
        canonical_dtype("flot16")
    with pytest.raises(ProblemError, match=r"unknown dtype 'torch\.zzz'"):
        torch_dtype("torch.zzz")


def test_views_of_tensors() -> None:
    """A descriptor has its tensor's dtype, a reinterpreted tensor the one it is read as."""
    tensor = torch.zeros(16, 16, dtype=torch.bfloat16)
    assert dtype_of(TensorDescriptor.from_tensor(tensor, [16, 16])) == "bf16"
    as_fp8 = triton.reinterpret(torch.zeros(16, dtype=torch.int8), tl.float8e5)
    assert dtype_of(as_fp8) == "fp8e5"
