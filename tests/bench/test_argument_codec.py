"""Arguments on their way to another process: the same values, bytes and aliases on both sides."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import triton
import triton.language as tl
from hypothesis import given
from hypothesis import strategies as st
from triton.tools.tensor_descriptor import TensorDescriptor

from asmtune.base.errors import InputError, MeasureError
from asmtune.measure.bench.argument_codec import (
    Opaque,
    SharedArguments,
    unpack_arguments,
)
from tests import gluon_kernels
from tests.sample_kernels import scale

DTYPES = [torch.float32, torch.float16, torch.bfloat16, torch.int8, torch.int64, torch.bool]


def sent(arguments: dict[str, Any], constexprs: frozenset[str] = frozenset()) -> dict[str, Any]:
    """The arguments after a journey through JSON and the file."""
    shared = SharedArguments(arguments, constexprs)
    try:
        return unpack_arguments(json.loads(json.dumps(shared.to_json())))
    finally:
        shared.close()


def same_bits(a: torch.Tensor, b: torch.Tensor) -> bool:
    """Say if two tensors hold the same bytes, NaN or not."""
    packed = [torch.empty(t.numel(), dtype=t.dtype).copy_(t.reshape(-1)) for t in (a, b)]
    return torch.equal(*[tensor.view(torch.uint8) for tensor in packed])


@st.composite
def views(draw: st.DrawFn) -> list[torch.Tensor]:
    """Views of one or two storages with any strides, also 0 and overlapping, some empty."""
    made = []
    for seed in range(draw(st.integers(1, 2))):
        dtype = draw(st.sampled_from(DTYPES))
        generator = torch.Generator().manual_seed(seed)
        raw = torch.randint(0, 256, (4096,), dtype=torch.uint8, generator=generator)
        whole = raw.bool() if dtype == torch.bool else raw.view(dtype)
        for _ in range(draw(st.integers(1, 3))):
            shape = draw(st.lists(st.integers(0, 5), max_size=3))
            strides = draw(st.lists(st.integers(0, 20), min_size=len(shape), max_size=len(shape)))
            made.append(whole.as_strided(shape, strides, draw(st.integers(0, 40))))
    return made


@given(views())
def test_tensors_arrive_as_they_were(tensors: list[torch.Tensor]) -> None:
    """Bytes, dtype, shape, strides and the alignment of the address survive, NaN included."""
    arrived = sent({str(place): tensor for place, tensor in enumerate(tensors)})
    for place, tensor in enumerate(tensors):
        other = arrived[str(place)]
        assert (other.dtype, other.shape, other.stride()) == (
            tensor.dtype,
            tensor.shape,
            tensor.stride(),
        )
        if tensor.numel():
            assert same_bits(other, tensor)
            assert other.data_ptr() % 512 == tensor.data_ptr() % 512


@given(views())
def test_views_share_memory_as_they_did(tensors: list[torch.Tensor]) -> None:
    """What is written through one view is seen through the others exactly as in the parent."""
    arrived = list(sent({str(place): t for place, t in enumerate(tensors)}).values())
    for group in (tensors, arrived):
        for place, tensor in enumerate(group):
            if tensor.numel():
                tensor[(0,) * tensor.dim()] = place
    for tensor, other in zip(tensors, arrived, strict=True):
        assert same_bits(tensor, other)


def test_only_what_is_covered_travels() -> None:
    """Of a large storage, the bytes between its first and its last view are copied."""
    whole = torch.zeros(1 << 20)
    shared = SharedArguments({"a": whole[1000:1010], "b": whole[1020:1024]})
    assert shared.nbytes < 1024
    shared.close()


SCALARS = [None, True, 0, -(2**63), 2**64 - 1, 1.5, float("-inf"), "relu", (1, (2.0, None)), [3]]


@pytest.mark.parametrize("value", SCALARS, ids=repr)
def test_plain_values_keep_value_and_type(value: Any) -> None:
    """Numbers, strings, None, tuples and lists arrive equal, and of their own type."""
    (arrived,) = sent({"x": value}).values()
    assert (arrived, type(arrived)) == (value, type(value))


def test_values_of_triton_arrive() -> None:
    """Constexprs, dtypes, reinterpreted tensors and tensor descriptors are what they were."""
    matrix = torch.arange(64, dtype=torch.float16).reshape(8, 8)
    bytes_ = torch.arange(64, dtype=torch.int8)
    arrived = sent(
        {
            "constexpr": tl.constexpr(64),
            "dtype": tl.bfloat16,
            "fp8": triton.reinterpret(bytes_, tl.float8e4nv),
            "desc": TensorDescriptor(matrix, [8, 8], [8, 1], [1, 1], padding="nan"),
            "matrix": matrix,
            "numpys": np.int64(7),
        }
    )
    assert (arrived["numpys"], type(arrived["numpys"])) == (7, int)
    assert arrived["constexpr"].value == 64
    assert arrived["dtype"] == tl.bfloat16
    assert arrived["fp8"].dtype == tl.float8e4nv
    assert torch.equal(arrived["fp8"].base, bytes_)
    desc = arrived["desc"]
    assert isinstance(desc, TensorDescriptor)
    assert (list(desc.shape), list(desc.strides), desc.padding) == ([8, 8], [8, 1], "nan")
    arrived["matrix"][0, 0] = 5
    assert desc.base[0, 0] == 5
    desc.block_shape[:] = [4, 4]  # as a hook does


def test_descriptors_and_layouts_of_gluon_arrive() -> None:
    """They keep their class, with their layouts, and share the tensor's memory."""
    matrix = torch.arange(128, dtype=torch.float16).reshape(8, 16)
    desc, layout = gluon_kernels.descriptor(matrix, [8, 16]), gluon_kernels.gl.AutoLayout()
    arrived = sent({"desc": desc, "layout": layout, "matrix": matrix})
    assert arrived["desc"].layout == desc.layout
    assert type(arrived["desc"]) is type(desc)
    assert type(arrived["layout"]) is type(layout)
    arrived["matrix"][0, 0] = 5
    assert arrived["desc"].base[0, 0] == 5


def test_what_cannot_travel_is_named() -> None:
    """An object of the user's is refused with its argument's name and the way out."""
    with pytest.raises(InputError, match=r"argument lookup: object .*isolate=False"):
        sent({"lookup": object()})
    with pytest.raises(InputError, match=r"argument x: .* on meta has no memory"):
        sent({"x": torch.empty(3, device="meta")})


def test_a_constexpr_that_cannot_travel_is_replaced() -> None:
    """The code holds what it meant: in its place stands its text, wherever it was."""
    arrived = sent({"ACT": object, "fn": scale}, frozenset({"ACT"}))
    assert arrived["ACT"] == Opaque(repr(object))
    assert isinstance(arrived["fn"], Opaque)


def test_contents_come_back_where_code_of_the_users_ran() -> None:
    """A touched copy gives the tensors what they held, and nothing outside of them."""
    whole = torch.arange(100.0)
    untouched, shared = (SharedArguments({"x": whole[10:20]}) for _ in range(2))
    shared.touched = True
    whole.zero_()
    untouched.close()
    assert not whole.any()
    shared.close()
    assert torch.equal(whole[10:20], torch.arange(10.0, 20.0))
    assert not whole[:10].any()
    assert not whole[20:].any()


def test_no_file_is_left(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Neither in memory nor on the disk, which is taken where memory is scarce, is there a name."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)
    monkeypatch.setattr("asmtune.measure.memory.host_bytes", lambda: 0)
    x = torch.arange(5.0)
    shared = SharedArguments({"x": x})
    assert Path(f"/proc/self/fd/{shared.file}").readlink().is_relative_to(tmp_path)
    assert list(tmp_path.iterdir()) == []
    assert torch.equal(unpack_arguments(shared.to_json())["x"], x)
    shared.close()


def test_no_room_is_an_error_not_a_signal(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the file cannot grow, the bytes asked for and the way out are told."""

    def full(*_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "posix_fallocate", full)
    with pytest.raises(MeasureError, match=r"512 bytes .*No space left.*isolate=False"):
        SharedArguments({"x": torch.zeros(10)})
