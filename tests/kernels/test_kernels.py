"""Every kernel that comes with asmtune: its parts, its three checks, and its results."""

from __future__ import annotations

import inspect
from typing import Any

import pytest
import torch

from asmtune.base.settings import Settings
from asmtune.core.hardware.model import Target
from asmtune.core.kernel_module import load_kernel_module
from asmtune.workshop.kernel_checks.tolerances import excess
from benchmarks.kernels.entries import ENTRIES
from tests.interpreter import Interpreter
from tests.kernels.accuracy import KERNELS, case_of, module_of
from tests.kernels.made import artifact_of

PAIRS = [(name, dtype) for name in KERNELS for dtype in module_of(name).DTYPES]
PARTS = (
    *("kernel", "space", "SHAPES", "DTYPES", "DEFAULT", "OUTPUTS"),
    *("inputs", "problem", "baseline", "reference", "_tuned"),
)
PRODUCTS = (
    *("tiled_matmul", "matmul", "scaled_matmul", "linear", "conv2d", "gru"),
    *("attention", "attention_backward", "attention_fp8"),
)
"""Kernels of tiles, whose loads are told apart from others in tests of their own."""
FORWARD_ONLY = (
    *("vector_add", "gelu", "softmax", "tiled_matmul"),
    *("matmul", "linear", "scaled_matmul", "quantise", "attention_fp8"),
)

MANY_ROWS = torch.zeros(1, 1).expand((1 << 31) - 1, 1)

UNLIKE = ("dropout", "scaled_matmul")
"""Dropout draws other numbers than PyTorch; `test_scaled.py` has products of FP8."""


ACCURACY = "tests.kernels.accuracy:interpreted"
SECONDS = {"conv2d": 5, "attention": 3, "gru": 3, "rope": 3}
"""CPU seconds of a check, where it is long: those are begun first."""


def slow(name: str, dtype: str) -> Any:
    """Return the parameters of a check that is marked as slow."""
    return pytest.param(name, dtype, marks=pytest.mark.slow(seconds=SECONDS.get(name, 1)))


@pytest.mark.parametrize(("name", "dtype"), [slow(*pair) for pair in PAIRS])
def test_accuracy(name: str, dtype: str, interpreter: Interpreter) -> None:
    """Every shape, config, layout, value and gradient of the case is within its tolerance."""
    found = interpreter.call(ACCURACY, name, dtype)
    assert len(found) >= 10
    assert {what: error for what, error in found.items() if not error <= 1} == {}


EXTRAS = [slow(name, "extra") for name in KERNELS if case_of(name).extras]


@pytest.mark.parametrize(("name", "dtype"), EXTRAS)
def test_extras(name: str, dtype: str, interpreter: Interpreter) -> None:
    """What a case compares besides is within its bounds."""
    found = interpreter.call(ACCURACY, name, dtype)
    assert {what: error for what, error in found.items() if not error <= 1} == {}


@pytest.mark.parametrize("name", KERNELS)
def test_parts_and_checks(name: str) -> None:
    """A kernel has all parts, a baseline of its own interface, a case, and an entry to time."""
    module, case, entry = module_of(name), case_of(name), ENTRIES[name]
    assert [part for part in (*PARTS, name) if not hasattr(module, part)] == []
    public = inspect.signature(getattr(module, name)).parameters.values()
    own = {p.name: p.default for p in public if p.name not in ("vendor", "gluon")}
    inspect.signature(module.baseline).bind(**own)
    made = module.inputs(module.SHAPES[0], module.DTYPES[0], "meta")
    assert {*case.varied, *case.gradients} <= made.keys() <= {p.name for p in public}
    assert len(case.shapes) >= 4
    assert callable(entry.vendor)
    assert set(entry.dtypes) <= set(module.DTYPES)
    assert entry.flops is None or set(entry.rates) == set(entry.dtypes or module.DTYPES)


@pytest.mark.parametrize("name", [name for name in KERNELS if name not in UNLIKE])
def test_vendor_computes_the_same(name: str) -> None:
    """What a kernel is timed against gives the same results."""
    torch.manual_seed(0)
    module = module_of(name)
    for shape in case_of(name).shapes[:2]:
        inputs = module.inputs(shape, "fp32", "cpu")
        got, want = ENTRIES[name].vendor(inputs)(), module.baseline(**inputs)
        wanted = (want,) if isinstance(want, torch.Tensor) else want
        found = (got,) if isinstance(got, torch.Tensor) else got[: len(wanted)]
        for mine, exact in zip(found, wanted, strict=True):
            torch.testing.assert_close(mine.double(), exact.double(), atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize(("name", "dtype"), PAIRS)
def test_problem_without_memory(name: str, dtype: str) -> None:
    """At all shapes a meta problem has programs, and its space a default that it may take."""
    module = load_kernel_module(name)
    for shape in module.shapes:
        problem = module.problem(shape, dtype, "meta")
        tensors = [v for v in problem.arguments.values() if isinstance(v, torch.Tensor)]
        assert all(tensor.is_meta for tensor in tensors)
        space = module.space()
        default = space.first(**problem.shape)
        assert default in list(space.configs(**problem.shape))
        assert min(problem.programs(default)) >= 1
        assert problem.name == name


@pytest.mark.parametrize("name", KERNELS)
def test_spaces_are_worth_searching(name: str) -> None:
    """Every shape leaves 12 configs or more, and none that the kernel cannot be bound to."""
    module = load_kernel_module(name)
    for shape in module.shapes:
        problem = module.problem(shape, module.dtypes[0], "meta")
        configs = list(module.space().configs(**problem.shape))
        assert len(configs) >= 12, shape
        for config in configs:
            problem.bind(config)


@pytest.mark.slow
@pytest.mark.parametrize("name", [n for n, t in PAIRS if n not in PRODUCTS and t == "bf16"])
def test_vectors_are_loaded(name: str, settings: Settings, target: Target) -> None:
    """Rows of 1000 halves and vectors of odd length move 16 bytes at once, and spill nothing."""
    module = load_kernel_module(name)
    sizes = {"cols": 1000, "rows": 64, "n": 10_007, "tanh": 1, "seq": 8, "batch": 2, "heads": 4}
    sizes |= {"dim": 2000, "group_rows": 1, "group_cols": 0, "e5m2": 0}
    shape = {size: sizes[size] for size in module.shapes[0]}
    problem = module.problem(shape, "bf16", "meta")
    config = module_of(name).DEFAULT
    if "ROWS" in config.kwargs or "BLOCK_M" in config.kwargs:
        rows = {k: 16 for k in ("ROWS", "BLOCK_M") if k in config.kwargs}
        config = type(config)({**config.kwargs, **rows}, num_warps=8)
    artifact = artifact_of(problem, config, settings, target)
    assert "ld.global.v4.b32" in artifact.outputs["ptx"]
    if name != "cross_entropy":  # which writes two numbers a row
        stored = "v2" if name == "quantise" else "v4"  # a byte for each half that was loaded
        assert f"st.global.{stored}.b32" in artifact.outputs["ptx"]


def call(name: str, **changed: Any) -> Any:
    """The public function on small CPU tensors, some arguments changed."""
    module = module_of(name)
    inputs = module.inputs(case_of(name).shapes[0], module.DTYPES[0], "cpu")
    return getattr(module, name)(**{**inputs, **changed})


@pytest.mark.parametrize("name", KERNELS)
def test_refused_dtypes(name: str) -> None:
    """float64 is refused by name, in one line that says what is taken."""
    module = module_of(name)
    first = case_of(name).varied[0]
    inputs = module.inputs(case_of(name).shapes[0], "fp32", "cpu")
    with pytest.raises(ValueError, match=rf"^{name}: \w+ is torch.float.*(must be|convert)"):
        call(name, **{first: inputs[first].double()})


@pytest.mark.parametrize("name", FORWARD_ONLY)
def test_refused_gradients(name: str) -> None:
    """A function without a backward pass refuses to lose a gradient."""
    first = case_of(name).varied[0]
    inputs = module_of(name).inputs(case_of(name).shapes[0], module_of(name).DTYPES[0], "cpu")
    with pytest.raises(ValueError, match=f"{name} has no backward: call it under torch.no_grad"):
        call(name, **{first: inputs[first].requires_grad_()})


REFUSED: dict[str, tuple[dict[str, Any], ...]] = {
    "vector_add": ({"y": torch.zeros(3)},),
    "gelu": ({"approximate": "erf"},),
    "dropout": ({"p": 1.5}, {"p": float("nan")}, {"seed": -1}, {"p": torch.tensor(0.5)}),
    "softmax": ({"x": MANY_ROWS}, {"x": torch.zeros(3, 0)}),
    "layernorm": ({"weight": torch.zeros(3)},),
    "rmsnorm": ({"weight": torch.zeros(70).half()},),
    "layernorm_backward": ({"mean": torch.zeros(3)},),
    "rmsnorm_backward": ({"dy": torch.zeros(5, 3)},),
    "cross_entropy": ({"target": torch.zeros(5)}, {"reduction": "max"}),
    "rope": ({"cos": torch.zeros(5, 3)}, {"x": torch.zeros(5, 2, 3, 71)}),
    "quantise": (
        *({"format": "int8"}, {"group": "block"}, {"group": (1, -2)}),
        *({"scales": torch.ones(5, 4)}, {"amax": torch.ones(1), "scales": torch.ones(1)}),
    ),
    "scaled_matmul": (
        *({"a": torch.zeros(17, 3)}, {"scale_a": torch.ones(2)}, {"scale_a": torch.ones(5, 1)}),
        *({"bias": torch.ones(3).bfloat16()}, {"out_dtype": torch.int8}),
    ),
    "resize": ({"x": torch.zeros(3, 4).char()},),
    "warp": ({"offset": torch.zeros(7, 70)}, {"offset": torch.zeros(7, 3).short()}),
    "correlation": ({"shifts": 0}, {"out_shift": 32}, {"out": torch.zeros(5, 5, 9).char()}),
    "gru": ({"h0": torch.zeros(13).half()}, {"weight_hh": torch.zeros(39, 7).half()}),
    "cross_entropy_backward": ({"lse": torch.zeros(3)},),
    "attention": (
        *({"dropout": 1.0}, {"window": 0}, {"window": (1, -1)}, {"window": (1, 2, 3)}),
        *({"mask": torch.zeros(1)}, {"mask": torch.zeros(1, 2, 3, 1)}),
        *({"mask": torch.zeros(1, 1, 1, 1, requires_grad=True)}, {"scale": -1.0}),
        *({"dropout": torch.tensor(0.5)}, {"seed": -1}, {"padding": torch.zeros(1)}),
        *({"padding": torch.zeros(3).int()}, {"k": torch.zeros(1, 3, 9, 16).half()}),
        *({"q": torch.zeros(2, 70, 16).half()}, {"v": torch.zeros(1, 1, 9, 16).half()}),
    ),
    "attention_fp8": (
        *({"k": torch.zeros(1).half()}, {"q": torch.zeros(1, 2, 9, 40).half()}),
        *({"scale_k": torch.ones(1).half()}, {"scale_k": torch.ones(3)}),
        *({"scale_v": torch.ones(1, 1, 7, 1)}, {"scale_k": torch.ones((), device="meta")}),
    ),
    "conv2d": (
        *({"x": torch.zeros(3, 4, 5)}, {"weight": torch.zeros(8, 3, 1, 1)}, {"groups": 3}),
        *({"weight": torch.zeros(8, 40, 0, 1)}, {"bias": torch.zeros(7)}, {"padding": "same"}),
        *({"dilation": (1, 2, 3)}, {"groups": 4, "weight": torch.zeros(6, 10, 1, 1)}),
    ),
    "matmul": (
        *({"b": torch.zeros(3, 2).half()}, {"a": torch.zeros(4).half()}),
        *({"bias": torch.zeros(3).half()}, {"activation": "tanh"}),
    ),
    "linear": ({"weight": torch.zeros(5, 0)}, {"x": torch.zeros(2, 3, 0)}),
    "tiled_matmul": ({"b": torch.zeros(4, 2).half()}, {"a": torch.zeros(3).half()}),
    "attention_backward": ({"lse": torch.zeros(3)}, {"window": 0}),
}
"""Arguments that do not fit, by kernel; the last is the one to name."""


@pytest.mark.parametrize("name", REFUSED)
def test_refused_arguments(name: str) -> None:
    """What does not fit is refused by the name of the argument."""
    for changed in REFUSED[name]:
        with pytest.raises(ValueError, match=rf"^{name}: .*\b{[*changed][-1]}\b"):
            call(name, **changed)


@pytest.mark.parametrize(
    ("got", "want", "right"),
    [
        ([1.0, 2.0], [1.0, 2.0], True),
        ([1.0, 2.0001], [1.0, 2.0], False),
        ([1.0, float("nan")], [1.0, float("nan")], True),
        ([1.0, 2.0], [1.0, float("nan")], False),
        ([1.0, float("nan")], [1.0, 2.0], False),
        ([1.0, float("inf")], [1.0, float("inf")], True),
        ([1.0, float("-inf")], [1.0, float("inf")], False),
        ([1.0, float("inf")], [1.0, 1e39], True),
        ([1.0, 3e38], [1.0, 1e39], False),
        ([1.0], [1.0, 2.0], False),
        ([0.0, 0.0], [0.0, 1e-39], True),
    ],
)
def test_excess_tells_right_from_wrong(got: list[float], want: list[float], right: bool) -> None:
    """Values, NaN, infinities with their signs, what overflows, and shapes all count."""
    exact = torch.tensor(want, dtype=torch.float64)
    assert (excess(torch.tensor(got), exact) <= 1) is right
