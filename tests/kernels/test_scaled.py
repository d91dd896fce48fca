"""Products of FP8 with scales: the vendor's function, split sums, layouts of scales, sm_80."""

from __future__ import annotations

import itertools
import re
from typing import Any

import pytest
import torch

from asmtune.base.settings import Settings
from asmtune.core.config import Config
from asmtune.kernels import quantise, scaled_matmul
from asmtune.kernels._gemm_host import grid
from asmtune.triton_api.interpreter import exact_floats
from asmtune.workshop.kernel_checks.tolerances import excess
from tests.interpreter import Interpreter
from tests.kernels.made import artifact_of

TILE = {"BLOCK_M": 32, "BLOCK_N": 16, "BLOCK_K": 32, "GROUP_M": 2}


def ptx(settings: Settings, problem: Any, config: Config, target: str) -> str:
    """Compile a launch for a target, without a GPU."""
    return str(artifact_of(problem, config, settings, target).outputs["ptx"])


@exact_floats()
def splits() -> dict[str, list[float]]:
    """Return the errors of sums that several programs share, and the counts that they leave."""
    found = {}
    for place, group in enumerate(((1, 1, 0), (1, 16, 32), (1, 128, 128))):
        shape = dict(zip(("M", "N", "K"), (40, 48, 320), strict=True))
        shape |= dict(zip(("GROUP_A", "GROUP_B", "GROUP_K"), group, strict=True))
        arguments = scaled_matmul.problem(shape, "fp8e4nv", "cpu").arguments
        arguments["sums_ptr"] = torch.empty(1 << 18)
        loads = ("pointers", "descriptors")[place % 2]
        config = {"LOADS": loads, "PERSISTENT": False, "SPLIT_K": 4, **TILE}
        scaled_matmul.kernel[grid({**arguments, **config})](**arguments, **config)
        error = excess(arguments["c_ptr"], scaled_matmul.reference(arguments))
        found[str(group)] = [min(error, 1e300), float(arguments["count_ptr"].abs().sum())]
    return found


@pytest.mark.slow
def test_split_sums(interpreter: Interpreter) -> None:
    """Each part has its own groups' scales, and the counts are left at 0."""
    found = interpreter.call("tests.kernels.test_scaled:splits")
    assert len(found) == 3
    assert {
        what: error for what, error in found.items() if not (error[0] <= 1 and not error[1])
    } == {}


@pytest.mark.parametrize("group", [*range(1, 130), 256, 512])
def test_every_group_has_a_config(group: int) -> None:
    """Few columns and short groups of K leave configs, as many and long ones do."""
    space = scaled_matmul.space()
    sizes = dict.fromkeys(("GROUP_A", "GROUP_B"), 1) | {"batch": 1, "MULTIPLE_STRIDES": 1}
    sizes |= {"SMS": 132, "SIZE": 1, "K": 2 * group, "GROUP_K": group}
    for M, N in itertools.product((1, 65, 4096), (1, 32, 33, 64, 65, 128, 4096)):
        config = space.first(M=M, N=N, **sizes)
        assert space.lacks(config, M=M, N=N, **sizes) is None


@pytest.mark.parametrize("group", scaled_matmul.GRANULARITIES.values())
@pytest.mark.parametrize("dtype", scaled_matmul.DTYPES)
def test_devices_without_fp8_multiply_in_fp16(
    group: tuple[int, int, int], dtype: str, settings: Settings
) -> None:
    """An A100 gets products of fp16, an H200 those of FP8, from the same launch."""
    names = ("GROUP_A", "GROUP_B", "GROUP_K")
    shape = {"M": 64, "N": 256, "K": 256, **dict(zip(names, group, strict=True))}
    problem = scaled_matmul.problem(shape, dtype, "meta")
    old, new = (ptx(settings, problem, scaled_matmul.DEFAULT, name) for name in ("A100", "H200"))
    assert "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32" in old
    assert re.search(r"wgmma\S+f32\.e[45]m[23]\.e4m3", new)


@pytest.mark.parametrize("format_", ["e4m3", "e5m2"])
def test_rounding_is_by_units_that_round_once(format_: str, settings: Settings) -> None:
    """Conversions of fp32 are Hopper's own; older devices, which go by fp16, use integers."""
    shape = {**quantise.SHAPES[0], "rows": 64, "e5m2": int(format_ == "e5m2")}
    problem = quantise.problem(shape, "bf16", "meta")
    config = Config({"ROWS": 8, "COLS": 1024, "TILES": 1}, num_warps=8)
    for target, native in (("A100", False), ("L4", False), ("H200", True)):
        text = ptx(settings, problem, config, target)
        assert (f"cvt.rn.satfinite.{format_}x2.f32" in text) is native
        assert "cvt.rz.f16" not in text
        assert "ld.global.v4.b32" in text
        assert "st.global.v4.b32" in text


def test_vendor_computes_the_same() -> None:
    """`torch._scaled_mm` gives what the function gives, called as either is."""
    for group in ((0, 0, 0), (1, 1, 0)):
        names = ("M", "N", "K", "GROUP_A", "GROUP_B", "GROUP_K")
        shape = dict(zip(names, (32, 48, 64, *group), strict=True))
        given = scaled_matmul.inputs(shape, "fp8e4nv", "cpu")
        exact = {n: x.double() if isinstance(x, torch.Tensor) else x for n, x in given.items()}
        want = scaled_matmul.baseline(**exact)
        assert excess(scaled_matmul.by_torch(**given, vendor=True), want, {}) <= 1
        arguments = scaled_matmul.problem(shape, "fp8e4nv", "cpu").arguments
        arguments["c_ptr"].fill_(float("nan"))
        scaled_matmul._launch_torch(*(arguments.get(n) for n in scaled_matmul.kernel.arg_names))
        assert excess(arguments["c_ptr"], scaled_matmul.reference(arguments), {}) <= 1


@pytest.mark.parametrize(
    ("changed", "fits"),
    [
        ({}, True),
        ({"GROUP_A": 1, "GROUP_B": 1}, True),
        ({"GROUP_A": 1, "GROUP_B": 128, "GROUP_K": 128}, True),
        ({"GROUP_A": 1, "GROUP_B": 1, "GROUP_K": 64}, False),
        ({"GROUP_A": 1}, False),
        ({"K": 520}, False),
        ({"N": 300}, False),
    ],
)
def test_vendor_is_asked_for_what_it_takes(
    changed: dict[str, int], fits: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its three granularities, with extents that 16 divides, on a device that has them."""
    zeros = dict.fromkeys(("GROUP_A", "GROUP_B", "GROUP_K"), 0)
    shape = {"M": 64, "N": 256, "K": 512, **zeros, **changed}
    arguments = scaled_matmul.problem(shape, "fp8e4nv", "cpu").arguments
    assert not scaled_matmul.has_vendor(arguments)
    monkeypatch.setattr(scaled_matmul, "_capability", lambda _: (9, 0))
    assert scaled_matmul.has_vendor(arguments) is fits
    for operand in ("a_ptr", "b_ptr"):  # of the same tuning key
        axis = "ab".index(operand[0]) + 1
        expanded = arguments[operand].narrow(axis, 0, 1).expand_as(arguments[operand])
        assert not scaled_matmul.has_vendor({**arguments, operand: expanded})
    monkeypatch.setattr(scaled_matmul, "_capability", lambda _: (8, 0))
    assert not scaled_matmul.has_vendor(arguments)


def test_quantised_operands_are_the_vendors() -> None:
    """Scales of rows, of 1 x 128 and of 128 x 128 lie as `torch._scaled_mm` wants them."""
    monkey = pytest.MonkeyPatch()
    monkey.setattr(scaled_matmul, "_capability", lambda _: (9, 0))
    x, weight = torch.zeros(64, 640), torch.zeros(256, 640)
    for groups in (("row", "row"), ((1, 128), (128, 128)), ("tensor", "tensor")):
        made = [
            quantise._arguments(matrix, "e4m3", quantise._groups(matrix, group), None, "x")
            for matrix, group in zip((x, weight), groups, strict=True)
        ]
        (a, scale_a), (b, scale_b) = (
            (one["y_ptr"].view(torch.float8_e4m3fn), one["scale_ptr"]) for one in made
        )
        assert scaled_matmul.has_vendor(scaled_matmul._arguments(a, b.mT, scale_a, scale_b.mT))
    monkey.undo()
