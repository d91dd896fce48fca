"""Kernels that scores are learnt from and judged on: they compile, and compute what they say."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType

import pytest

from asmtune.base.settings import Settings
from asmtune.compile.lower import Lowering, LowerRequest
from asmtune.compile.pool import compile_one
from asmtune.core.hardware.shipped import load_target
from asmtune.core.kernel_module import from_python_module
from asmtune.core.records.artifacts import Artifact, Sketch
from tests.compile.making import sketch_one
from tests.interpreter import Interpreter

ROOT = Path(__file__).parents[1]

SMALL: Mapping[str, Mapping[str, int]] = {
    "adam_step": {"total": 3001},
    "add_rmsnorm": {"rows": 7, "cols": 200},
    "argmax_rows": {"rows": 5, "cols": 300},
    "attention_bwd_kv": {"B": 1, "H": 2, "N": 77, "D": 32},
    "attention_bwd_q": {"B": 1, "H": 2, "N": 77, "D": 32},
    "attention_causal": {"B": 1, "H": 2, "N": 77, "D": 32},
    "attention_decode": {"heads": 2, "group": 3, "N": 83, "D": 32, "splits": 3},
    "attention_paged": {"batch": 3, "heads": 2, "group": 3, "D": 32, "pages": 5},
    "attention_window": {"B": 1, "H": 2, "N": 77, "D": 32, "window": 20},
    "batched_matmul": {"B": 2, "M": 40, "N": 37, "K": 70},
    "batched_small": {"batch": 5, "S": 20},
    "conv1d_causal": {"batch": 2, "time": 30, "width": 50},
    "conv2d": {"batch": 2, "height": 5, "width": 6, "C": 20, "K": 24, "taps": 3},
    "cross_entropy": {"rows": 5, "vocabulary": 1500},
    "cross_entropy_bwd": {"rows": 5, "vocabulary": 1500},
    "cumsum": {"rows": 5, "cols": 300},
    "dequantise_int4": {"rows": 5, "cols": 384},
    "dropout": {"total": 3001, "four": 1},
    "embedding_bwd": {"rows": 30, "cols": 70, "vocabulary": 10},
    "gather_elements": {"rows": 5, "cols": 70},
    "gather_rows": {"rows": 9, "cols": 70, "vocabulary": 20},
    "groupnorm": {"batch": 2, "groups": 3, "channels": 4, "pixels": 70},
    "gru_scan": {"batch": 2, "time": 9, "width": 50},
    "hadamard": {"rows": 9, "levels": 6},
    "histogram": {"groups": 2, "length": 700, "bins": 16},
    "layernorm_bwd_dw": {"rows": 150, "cols": 70},
    "layernorm_bwd_dx": {"rows": 3, "cols": 700},
    "matmul_block_ptr": {"M": 20, "N": 48, "K": 50},
    "matmul_fma": {"M": 20, "N": 33, "K": 50},
    "matmul_fp8": {"M": 20, "N": 48, "K": 80},
    "matmul_fp8_blocks": {"M": 20, "N": 48, "K": 176},
    "matmul_gram": {"M": 150, "K": 70},
    "matmul_grouped": {"groups": 3, "rows": 50, "N": 40, "K": 50},
    "matmul_int8": {"M": 20, "N": 48, "K": 80},
    "matmul_moe": {"tokens": 20, "experts": 3, "N": 40, "K": 50},
    "matmul_persistent": {"M": 70, "N": 100, "K": 72},
    "matmul_persistent_fp8": {"M": 140, "N": 48, "K": 80},
    "matmul_splitk": {"M": 20, "N": 48, "K": 300},
    "matmul_streamk": {"M": 70, "N": 48, "K": 100},
    "matmul_strided": {"M": 20, "N": 48, "K": 50, "flip_a": 1, "flip_b": 1},
    "matmul_swiglu": {"M": 20, "N": 48, "K": 50},
    "matmul_tf32": {"M": 20, "N": 48, "K": 50},
    "matmul_tf32_rows": {"M": 20, "N": 48, "K": 50},
    "matmul_tma": {"M": 40, "N": 72, "K": 80},
    "matmul_tma_host": {"M": 40, "N": 72, "K": 80},
    "matmul_triangle": {"M": 50, "N": 40},
    "matmul_w4a16": {"M": 20, "N": 48, "K": 256},
    "matmul_w8a16": {"M": 20, "N": 48, "K": 50},
    "matvec": {"M": 9, "K": 300},
    "matvec_int4": {"M": 9, "K": 384},
    "max_pool": {"planes": 3, "height": 9, "width": 12},
    "quantise_blocks": {"rows": 5, "groups": 3},
    "quantise_rows": {"rows": 3, "cols": 300},
    "reduce_columns": {"M": 50, "N": 70},
    "resize_bilinear": {"planes": 2, "height": 5, "width": 6, "times": 3},
    "rmsnorm": {"rows": 7, "cols": 200},
    "rnn_dot": {"batch": 9, "time": 5, "width": 32},
    "rope": {"tokens": 7, "heads": 3, "head": 64},
    "rope_interleaved": {"tokens": 7, "heads": 3, "half": 32},
    "rwkv_scan": {"heads": 2, "time": 9, "D": 64},
    "silu_and_mul": {"rows": 3, "cols": 200},
    "softmax_bwd": {"rows": 3, "cols": 700},
    "softmax_columns": {"M": 70, "N": 50},
    "softmax_online": {"rows": 3, "cols": 700},
    "sort_rows": {"rows": 9, "cols": 50},
    "sparse_rows": {"rows": 30, "cols": 70, "mean": 5},
    "ssm_scan": {"rows": 5, "time": 100},
    "ssm_step": {"batch": 2, "width": 50, "state": 16},
    "stencil": {"M": 11, "N": 50},
    "stencil_cube": {"depth": 5, "height": 6, "width": 50},
    "sum_squares": {"total": 30001},
    "transpose": {"M": 50, "N": 37},
    "transpose_heads": {"batch": 2, "time": 30, "heads": 3, "D": 20},
    "welford": {"rows": 3, "cols": 70},
}
"""Shapes small enough for the interpreter, ragged where the kernel allows it."""


CORPUS = ROOT / "benchmarks" / "corpus"
MODULES = [
    f"{folder}.{found.name}"
    for folder in ("families", "kinds")
    for found in pkgutil.iter_modules([str(CORPUS / folder)])
    if not found.name.startswith("_")
]
"""Kernels that scores are learnt from, and kinds of kernels that they are judged on."""


def corpus(name: str) -> ModuleType:
    """A kernel module by its folder and name."""
    return importlib.import_module(f"benchmarks.corpus.{name}")


def interpreted_error(name: str) -> float:
    """Error relative to the reference, of a config from the middle of the space."""
    module = corpus(name)
    return interpreted_module(module, SMALL.get(name.partition(".")[2]) or module.SMALL)


def interpreted_module(module: ModuleType, shape: Mapping[str, int]) -> float:
    """Error of a module's kernel at a small shape.

    Triton's interpreter multiplies bf16 as integers, so that fp16 stands in for it.
    """
    name = module.__name__
    configs = list(module.space().configs(**shape))
    config = configs[len(configs) // 2]
    dtype = "fp16" if module.DTYPES[0] == "bf16" else module.DTYPES[0]
    problem = module.problem(shape, dtype, "cpu")
    values = {**problem.arguments, **config.kwargs}
    if config.pre_hook is not None:
        config.pre_hook(values)
    grid = problem.grid(values) if callable(problem.grid) else problem.grid
    problem.kernel[grid](**values)
    expected = module.reference(problem.arguments)
    result = problem.arguments[module.OUTPUT].double()
    assert result.shape == expected.shape, name
    return float((result - expected).norm() / expected.norm())


def test_every_family_is_tried() -> None:
    """The small shapes name all families, and a kernel that scores are fitted to judges none."""
    names = [name.partition(".")[2] for name in MODULES]
    assert len(set(names)) == len(names)
    assert set(SMALL) == {n.partition(".")[2] for n in MODULES if n.startswith("families.")}


@pytest.mark.slow(seconds=1)
@pytest.mark.parametrize("name", MODULES)
def test_kernel_computes_what_its_reference_says(name: str, interpreter: Interpreter) -> None:
    """A kernel run by Triton's interpreter agrees with its reference."""
    assert interpreter.call("tests.test_families:interpreted_error", name) < 5e-3


@pytest.mark.parametrize("name", MODULES)
def test_kernel_fits_its_measurement(name: str) -> None:
    """Every shape has 60 to 300 configs, of kinds 20, and tensors of less than 1 GB in all."""
    module = from_python_module(corpus(name))
    least = 20 if name.startswith("kinds.") else 60
    for shape in module.shapes:
        module.check_shape(shape)
        assert least <= len(list(module.space().configs(**shape))) <= 300
        arguments = module.problem(shape, module.dtypes[0], "meta").arguments.values()
        # A tensor descriptor has its tensor as `base`.
        tensors = [v.base if hasattr(v, "block_shape") else v for v in arguments]
        assert sum(t.nbytes for t in tensors if hasattr(t, "nbytes")) < 1e9


@pytest.mark.slow(seconds=1)
@pytest.mark.parametrize("name", MODULES)
def test_kernel_compiles_for_h200(name: str, settings: Settings) -> None:
    """A config from the middle of each space compiles on the last shape, on the first to TTGIR."""
    module = from_python_module(corpus(name))
    for shape, compiled in ((module.shapes[0], sketch_one), (module.shapes[-1], compile_one)):
        problem = module.problem(shape, module.dtypes[-1], "meta")
        configs = list(module.space().configs(**shape))
        request = Lowering(problem, load_target("H200"), 30).request(configs[len(configs) // 2])
        assert isinstance(request, LowerRequest), request
        found = compiled(request, settings)
        assert isinstance(found, Artifact | Sketch), found
