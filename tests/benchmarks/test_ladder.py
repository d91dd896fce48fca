"""The ladders: their results under Triton's interpreter, their assembly, and their documents."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from asmtune.base.settings import Settings
from asmtune.compile.lower import Lowering, LowerRequest
from asmtune.compile.pool import compile_one
from asmtune.core.config import Config
from asmtune.core.hardware.model import Target
from asmtune.core.hardware.shipped import load_target
from asmtune.core.problem import Problem
from asmtune.core.records.artifacts import Artifact
from asmtune.ir.asm.cubin import read_cubin
from asmtune.kernels._conv2d_vendor import Window
from asmtune.measure.timing.policy import TimingPolicy
from benchmarks.harness import RESULTS
from benchmarks.ladder import __main__ as command
from benchmarks.ladder import attention, conv, gemm, memory, others, traffic
from benchmarks.ladder.document import DOCUMENT, document
from benchmarks.ladder.steps import SIZES, STEPS, Operands, assembly
from tests.interpreter import Interpreter

ROOT = Path(__file__).parent.parent.parent
ROUND, ODD = SIZES[1], SIZES[2]


@pytest.mark.slow(seconds=4)
@pytest.mark.parametrize("dtype", ["fp16", "fp32", "bf16"])
def test_results_against_float64(dtype: str, interpreter: Interpreter) -> None:
    """At any size, tile, activation and odd value a step is off by no more than rounding."""
    steps = ("v0", "v1", "v2", "v3", "v4")
    found = interpreter.call("tests.kernels.interpreted_ladder:errors", dtype, steps)
    assert len(found) == 59
    assert {what: error for what, error in found.items() if not error <= 1} == {}


@pytest.fixture(scope="module")
def shown(settings: Settings, target: Target) -> Callable[..., dict[str, Any]]:
    """Give the function that reads a step's assembly at a size."""
    return lambda step, size=ROUND: assembly(step, size, target, settings)


@pytest.mark.slow
def test_each_step_shows_in_the_assembly(shown: Callable[..., dict[str, Any]]) -> None:
    """v0 multiplies by fma, v1 in tensor cores without loads ahead, v2 and v4 with; none spills."""
    seen = {step: shown(step) for step in STEPS}
    assert [seen[step]["products"].split()[0] for step in STEPS] == ["fma", *["wgmma"] * 4]
    assert "2" in seen["v0"]["loads"]
    assert all(list(seen[step]["loads"]) == ["16"] for step in STEPS if step != "v0")
    assert [seen[step]["cp_async"] > 0 for step in STEPS] == [False, False, True, True, True]
    assert [seen[step]["spills"] for step in STEPS] == [0] * 5
    assert seen["v0"]["shared"] < seen["v1"]["shared"] < seen["v2"]["shared"]


@pytest.mark.slow
def test_odd_sizes_are_loaded_element_by_element(shown: Callable[..., dict[str, Any]]) -> None:
    """At 1000, which 16 does not divide, v2 loads 2 bytes at once and nothing ahead."""
    seen = shown("v2", ODD)
    assert (list(seen["loads"]), seen["cp_async"]) == (["2"], 0)


def test_spaces_hold_v2() -> None:
    """What v3 and v4 search has the config of v2, and others."""
    configs = list(gemm.SPACE)
    assert gemm.V2 in configs
    assert 12 <= len(configs) <= 200


@pytest.mark.parametrize(
    ("b", "message"),
    [
        (torch.zeros(4, 2), "expected two matrices of equal inner extents"),
        (torch.zeros(3), "expected two matrices of equal inner extents"),
        (torch.zeros(3, 2).half(), "the dtypes must be equal, and fp16, bf16 or fp32"),
        (torch.zeros(2, 3).T, "both must be contiguous"),
        (torch.zeros(1, 1).expand(3, 2**30), "both must be contiguous"),
        (torch.zeros(3, 2**30, device="meta"), "each matrix must have fewer than"),
    ],
)
def test_operands_that_do_not_fit(b: torch.Tensor, message: str) -> None:
    """What no step takes is refused with its shape and dtype."""
    with pytest.raises(ValueError, match=rf"^\(2, 3\) .*{message}"):
        gemm.v2(torch.zeros(2, 3, device=b.device), b)


def test_epilogues_that_do_not_fit() -> None:
    """Another bias or activation is refused with what it must be."""
    a, b = torch.zeros(2, 3), torch.zeros(3, 4)
    with pytest.raises(ValueError, match=r"bias is \(3,\) .* must be contiguous, \(4,\)"):
        gemm.v4(a, b, torch.zeros(3))
    with pytest.raises(ValueError, match="'tanh' must be one of none, relu, gelu, silu"):
        gemm.v4(a, b, torch.zeros(4), "tanh")


def test_a_wrong_step_is_not_timed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A step that is off is named with its error, and nothing is timed."""
    exact = Operands.random({"M": 8, "N": 8, "K": 8}, "cpu")
    product, fused = exact.exact()
    right: dict[str, Any] = dict.fromkeys(STEPS, lambda: product.half())
    right |= {"v4": lambda: fused.half(), "v1": lambda: (product * 1.01).half()}
    monkeypatch.setattr(Operands, "random", classmethod(lambda *_: exact))
    monkeypatch.setattr(Operands, "launches", lambda _: right)
    assert list(command.measured(ROUND, TimingPolicy())["wrong"]) == ["v1"]


def results(**times: float) -> dict[str, Any]:
    """The committed results, with times at 4096."""
    found: dict[str, Any] = json.loads((RESULTS / "ladder.json").read_text())
    for row in found["rows"]:
        row.pop("times", None)
        if row["size"]["N"] == 4096 and times:
            row["times"] = {name: {"p50_us": value} for name, value in times.items()}
    return found


def test_the_document_is_of_the_results() -> None:
    """docs/ladder.md is what the committed results give: `python -m benchmarks.ladder --table`."""
    committed = json.loads((RESULTS / "ladder.json").read_text())
    assert DOCUMENT.read_text() == document(committed)


def test_gains_are_told() -> None:
    """Times give TFLOP/s, the share of PyTorch's speed, and the gain over the step before."""
    vendor = {"torch.matmul": 160.0, "torch.addmm, gelu": 240.0}
    times = {"v0": 4e5, "v1": 800.0, "v2": 250.0, "v3": 200.0, "v4": 192.0, **vendor}
    text = " ".join(document(results(**times)).split())
    assert "At 4096 it is 500 times as fast as v0." in text
    assert "At 4096 it is 1.25 times as fast as v2." in text
    assert "At 4096 it is 1.25 times as fast as torch.addmm, gelu." in text
    assert "| 4096 | v3 | 200.0 | 687.2 | 0.8 |" in text
    assert "| 4096 | v4 | 192.0 | 715.8 | 1.2 |" in text
    assert "| 4096 | torch.matmul | 160.0 | 859.0 | 1 |" in text


@pytest.mark.slow(seconds=5)
@pytest.mark.parametrize("dtype", ["fp16", "fp32"])
def test_attention_against_float64(dtype: str, interpreter: Interpreter) -> None:
    """Every step of attention is off by no more than rounding, at odd sizes and with NaN."""
    found = interpreter.call("tests.kernels.interpreted_ladder:attention_errors", dtype)
    assert len(found) == 12
    assert {what: error for what, error in found.items() if not error <= 1} == {}


@pytest.mark.slow(seconds=10)
@pytest.mark.parametrize("device", ["A100", "H200", "B200"])
def test_attention_compiles(device: str, settings: Settings) -> None:
    """Each kernel of attention compiles for three generations, and spills nothing."""
    extents = {"M": 1024, "N": 1024, "D": 64}
    q = torch.empty(4, 1024, 64, dtype=torch.float16, device="meta")
    s = attention.buffers("v0", q, q)["scores"]
    rows = {"s_ptr": s, "p_ptr": s, "N": 1024, "BLOCK": 1024}
    tensors = {"q_ptr": q, "k_ptr": q, "v_ptr": q, "y_ptr": q, "s_ptr": s, "p_ptr": s, "scale": 0.1}
    for kernel in (attention.scores, attention.weights, attention.values, attention.flash):
        given = {n: v for n, v in {**tensors, **extents}.items() if n in kernel.arg_names}
        problem = Problem(kernel, given, lambda _: (16, 4, 16), {}, kernel.fn.__name__)
        assert spilled(problem, attention.TILE, device, settings) == 0
    problem = Problem(attention.softmax, rows, lambda _: (4096,), {}, "softmax")
    assert spilled(problem, Config({}, num_warps=4), device, settings) == 0


def spilled(problem: Problem, config: Config, device: str, settings: Settings) -> int:
    """Compile a config for a device; return its spilled words."""
    request = Lowering(problem, load_target(device), 60).request(config)
    assert isinstance(request, LowerRequest), request
    artifact = compile_one(request, settings)
    assert isinstance(artifact, Artifact), artifact
    return read_cubin(artifact.cubin).spill_words


def test_memory_of_attention() -> None:
    """v0 allocates two squares of the keys, v1 one, v2 none; the document has today's figures."""
    square, result = 16 * 4096 * 4096 * 2, 16 * 4096 * 64 * 2
    steps = [memory.allocated(step, 4096) for step in memory.NAMES]
    assert steps == [2 * square + result, square + result, result]
    text = memory.DOCUMENT.read_text()
    assert memory.rewritten(text) == text, "run python -m benchmarks.ladder.memory"
    assert f"v0 allocates {steps[0] // result} times and v1 {steps[1] // result} times" in text
    assert memory.FIGURE.exists()


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"q": torch.zeros(4, 16)}, r"q \(4, 16\) torch.float32, .*: expected \(heads, rows, dim"),
        ({"k": torch.zeros(2, 0, 16)}, "expected .* none of them 0"),
        ({"v": torch.zeros(2, 5, 16)}, "k and v must be alike, with q's heads and dim"),
        ({"q": torch.zeros(3, 4, 16)}, "k and v must be alike, with q's heads and dim"),
        ({"q": torch.zeros(2, 4, 16).half()}, "the dtypes must be equal, and fp16, bf16 or fp32"),
        ({"q": torch.zeros(2, 4, 16, device="meta")}, "all must be on one device"),
        ({"q": torch.zeros(2, 16, 4).mT}, "all must be contiguous; call"),
        ({n: torch.zeros(2, 4, 24) for n in "qkv"}, "dim must be one of 16, 32, 64, 128"),
    ],
)
def test_attention_that_does_not_fit(changed: dict[str, Any], message: str) -> None:
    """Tensors that no step takes are refused with their shapes, in one line."""
    fitting = {"q": torch.zeros(2, 4, 16), "k": torch.zeros(2, 7, 16), "v": torch.zeros(2, 7, 16)}
    with pytest.raises(ValueError, match=message):
        attention.v2(**{**fitting, **changed})


@pytest.mark.slow(seconds=5)
@pytest.mark.parametrize("dtype", ["fp16", "fp32"])
def test_convolution_against_float64(dtype: str, interpreter: Interpreter) -> None:
    """Both steps, the bias and ReLU are off by no more than rounding, at odd sizes and with NaN."""
    found = interpreter.call("tests.kernels.interpreted_ladder:conv_errors", dtype)
    assert len(found) == 14
    assert {what: error for what, error in found.items() if not error <= 1} == {}


@pytest.mark.slow(seconds=5)
@pytest.mark.parametrize("device", ["A100", "H200", "B200"])
def test_convolution_compiles(device: str, settings: Settings) -> None:
    """The kernels of both steps, and those after them, compile for three generations."""
    x, weight = torch.empty(4, 9, 9, 64, device="meta"), torch.empty(64, 3, 3, 64, device="meta")
    window = Window.of(1, 1)
    y = conv.result(x, weight, window)
    given = {**conv.arguments(x, weight, y, window), "m_ptr": x, "bias_ptr": y, "z_ptr": y, "n": 9}
    configs = {conv.direct: conv.DIRECT, conv.windows: conv.WINDOWS, conv.relu: conv.ROWS}
    for kernel, config in {**configs, conv.add_bias: conv.ROWS}.items():
        named = {name: value for name, value in given.items() if name in kernel.arg_names}
        problem = Problem(kernel, named, lambda _: (9, 1), {}, kernel.fn.__name__)
        assert spilled(problem, config, device, settings) == 0


@pytest.mark.slow(seconds=8)
def test_one_kernel_moves_less_than_three() -> None:
    """Bias and ReLU on the tile save a quarter of the bytes or more, at each layer of ResNet."""
    saved = [int(line.split()[-2].rstrip("%")) for line in traffic.table().splitlines()[2:]]
    assert len(saved) == len(traffic.SHAPES)
    assert min(saved) >= 25
    made = traffic.Layer(traffic.SHAPES[0])
    sizes = sum(tensor.numel() * 2 for tensor in (made.x, made.weight, made.y))
    assert made.implicit(fused=False) == made.direct() == sizes
    assert made.im2col() == sizes + 2 * 9 * 2 * made.x.numel()
    text = traffic.DOCUMENT.read_text()
    assert traffic.rewritten(text) == text, "run python -m benchmarks.ladder.traffic"


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"x": torch.zeros(3, 4, 5)}, r"x \(3, 4, 5\) torch.float32 and .*: expected \(batch, he"),
        ({"weight": torch.zeros(2, 3, 3, 7)}, "expected .*, C"),
        ({"weight": torch.zeros(2, 3, 3, 5).half()}, "the dtypes must be equal, and fp16, bf16"),
        ({"x": torch.zeros(1, 4, 5, 4).mT}, "both must be contiguous; call"),
        ({"window": Window.of(1, 0, 3)}, "the window spans 7 pixels down and the padded image"),
    ],
)
def test_convolution_that_does_not_fit(changed: dict[str, Any], message: str) -> None:
    """Tensors that no step takes are refused with their shapes, in one line."""
    fitting = {"x": torch.zeros(1, 4, 4, 5), "weight": torch.zeros(2, 3, 3, 5)}
    with pytest.raises(ValueError, match=message):
        conv.v1(**{**fitting, "window": Window.of(1, 1), **changed})


@pytest.mark.slow(seconds=5)
@pytest.mark.parametrize("name", others.LADDERS)
def test_what_is_timed_is_right(name: str, interpreter: Interpreter) -> None:
    """Each step of the timed ladders is right at a tiny size, and PyTorch's functions run."""
    found = interpreter.call("tests.kernels.interpreted_ladder:timed_errors", name)
    assert list(found) == list(others.LADDERS[name].steps)
    assert {what: error for what, error in found.items() if not error <= 1} == {}


@pytest.mark.parametrize("name", others.LADDERS)
def test_pages_have_the_times_of_the_results(name: str) -> None:
    """A page has the committed times, or says which command makes them."""
    text = others.page_of(name).read_text()
    found = others.rewritten(name, text, others.file_of(name))
    assert found == text, f"run python -m benchmarks.ladder {name} --table"


def test_times_of_a_ladder() -> None:
    """A line a launch: time, rate, and speed by PyTorch's function; what failed has none."""
    run = {"device": "NVIDIA H100", "triton": "3.6.0", "torch": "2.11.0", "date": "2026-11-27T01"}
    failed = {"failed": "no room"}
    found = {"v0": {"p50_us": 40.0}, "v1": failed, others.SDPA: {"p50_us": 10.0}}
    row = {"size": {"N": 8}, "flops": 2e9, "times": found}
    wrong = {"size": {"N": 9}, "flops": 2e9, "wrong": {"v0": 2.0}}
    text = others.times("attention", {"provenance": run, "rows": [row, wrong]})
    assert "NVIDIA H100, Triton 3.6.0, PyTorch 2.11.0, 2026-11-27: halves" in text
    assert text.splitlines()[4:] == [
        "| N=8 | v0 | 40.0 | 50.0 | 0.25 |",
        f"| N=8 | {others.SDPA} | 10.0 | 200.0 | 1 |",
    ]


def test_a_wrong_step_of_attention_is_not_timed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A step that is off stands in the row with its error, and nothing is timed."""
    exact = torch.ones(2, 2, dtype=torch.float64)
    right: dict[str, Any] = dict.fromkeys(attention.BETWEEN, exact.half)
    right["v1"] = lambda: (exact * 1.1).half()
    made = others.Problem(right, {"": exact}, {"": "fp16 weights"}, 1.0)
    ladder = others.Ladder(tuple(attention.BETWEEN), {}, ({"N": 8},), lambda *_: made)
    monkeypatch.setitem(others.LADDERS, "attention", ladder)
    (row,) = command.other_rows("attention", TimingPolicy(), "cpu")
    assert list(row["wrong"]) == ["v1"]
    assert "times" not in row
