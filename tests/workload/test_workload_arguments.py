"""Names and values of arguments that the front end renamed, took apart or dropped."""

from __future__ import annotations

import pytest
import torch
import workload_kernels as kernels
from workload_lowering import F32, call, lower, pointer, work

from asmtune.ir.ttir.analysis import Kernel, LaunchArguments, analyse


def test_arguments_of_one_are_gone_from_the_text() -> None:
    """A specialised 1 shifts positions, not names."""
    values = {"q_ptr": pointer(), "N": 1, "scale": 0.5, "D": 16, "CAUSAL": False, "BM": 16}
    values |= dict.fromkeys(("k_ptr", "v_ptr", "o_ptr"), pointer()) | {"BN": 16}
    found = work(kernels.attention, grid=(1, 1), **values)
    assert [use.name for use in found.arguments] == ["q_ptr", "k_ptr", "v_ptr", "o_ptr"]
    assert found.loops[0].trips == 1


def test_a_second_name_in_the_source_does_not_hide_the_first() -> None:
    """`ptr = x_ptr` renames the value in the text; the parameter keeps its name."""
    values = {"x_ptr": pointer(), "y_ptr": pointer(), "n": 5, "BLOCK": 64}
    found = work(kernels.branchy, grid=(2,), **values)
    assert [(use.name, use.index) for use in found.arguments] == [("x_ptr", 0), ("y_ptr", 1)]


@pytest.mark.parametrize("sizes", [(7, 9), (7, 1)])
def test_tuples_are_taken_apart(sizes: tuple[int, int]) -> None:
    """Pointers and numbers in tuples are arguments of their own."""
    values = {"ptrs": (pointer(), pointer()), "sizes": sizes, "BLOCK": 64}
    found = work(kernels.tuple_arguments, grid=(1,), **values)
    assert [use.name for use in found.arguments] == ["ptrs.0", "ptrs.1"]
    assert [use.writes for use in found.arguments] == [False, True]
    assert found.loops[0].trips == 7


def test_a_descriptor_brings_its_shape() -> None:
    """The loop's bound is in the descriptor."""
    tools = pytest.importorskip("triton.tools.tensor_descriptor")
    tensor = torch.empty(48, 64, device="meta", dtype=F32)
    made = tools.TensorDescriptor(tensor, [48, 64], [64, 1], [2, 64])
    values = {"a": made, "y_ptr": pointer(), "BLOCK": 128}
    found = work(kernels.descriptor_shape, grid=(1,), **values)
    assert found.loops[0].trips == 24
    assert [use.name for use in found.arguments] == ["a", "y_ptr"]


def without_locations(text: str) -> str:
    """The text as a compiler without debug information writes it, values numbered."""
    lines = [line for line in text.split("\n") if not line.startswith("#loc")]
    bare = "\n".join(line.rpartition(" loc(")[0] if " loc(" in line else line for line in lines)
    signature = (
        "  tt.func public @scalar_loop(%arg0: !tt.ptr<f32>, %arg1: !tt.ptr<f32>, %arg2: i32) {"
    )
    body = bare[bare.index("\n", bare.index("tt.func")) :]
    for place, name in enumerate(("x_ptr", "y_ptr", "n")):
        body = body.replace(f"%{name}", f"%arg{place}")
    return "module {\n" + signature + body


def test_arguments_without_names_are_unknown() -> None:
    """A text that keeps no names gives no numbers, and says so."""
    text = without_locations(lower(kernels.scalar_loop, x_ptr=pointer(), y_ptr=pointer(), n=20))
    unnamed = analyse(text, LaunchArguments({"n": 20}, (1, 1, 1)))
    assert unnamed.assumptions[0].reason == "an unnamed argument"


def test_names_without_debug_information(monkeypatch: pytest.MonkeyPatch) -> None:
    """Triton still writes the parameters' names, `loc("n")`, though no line of the source."""
    monkeypatch.setenv("TRITON_DISABLE_LINE_INFO", "1")
    text = lower(kernels.scalar_loop, x_ptr=pointer(), y_ptr=pointer(), n=20)
    assert 'loc("n")' in text
    found = analyse(text, LaunchArguments({"n": 20}, (1, 1, 1)))
    assert found.loops[0].trips == 20
    assert [use.name for use in found.arguments] == ["x_ptr", "y_ptr"]


def test_sizes_of_memory_are_by_name() -> None:
    """A tensor's bytes bound what is unique, and show in the use."""
    values = {"x_ptr": pointer(), "y_ptr": pointer(), "cols": 1000, "BLOCK": 1024}
    kernel = Kernel(lower(kernels.softmax, **values))
    found = kernel.work(LaunchArguments(values, (10, 1, 1), {"x_ptr": 10 * 1000 * 4}))
    x, y = found.arguments
    assert (x.size_bytes, y.size_bytes) == (40000, None)
    assert x.unique_read_bytes == 40000
    assert y.unique_written_bytes == pytest.approx(10 * 1000 * 4)  # 24 of each 1,024 are masked
    assert kernel.work(call((10,), **values)).arguments[0].size_bytes is None
