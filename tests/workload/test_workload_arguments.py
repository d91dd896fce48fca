"""Names and values of arguments that the front end renamed, took apart or dropped."""

from __future__ import annotations

import pytest
import torch
import workload_kernels as kernels
from workload_lowering import F32, lower, pointer, work

from asmtune.ir.ttir.analysis import LaunchArguments, analyse


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
