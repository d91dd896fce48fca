"""The kernels that scores are learnt from: they compile for an H200, and compute what they say."""

from __future__ import annotations

import importlib
import json
import os
import pkgutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType

import pytest

from asmtune.compile import Lowering, compile_one
from asmtune.kernel_module import from_python_module
from asmtune.records import Artifact
from asmtune.settings import Settings
from asmtune.target import load_target

ROOT = Path(__file__).parents[1]

SMALL: Mapping[str, Mapping[str, int]] = {
    "attention_causal": {"B": 1, "H": 2, "N": 77, "D": 32},
    "attention_decode": {"heads": 2, "group": 3, "N": 83, "D": 32, "splits": 3},
    "batched_matmul": {"B": 2, "M": 40, "N": 37, "K": 70},
    "conv2d": {"batch": 2, "height": 5, "width": 6, "C": 20, "K": 24, "taps": 3},
    "cross_entropy": {"rows": 5, "vocabulary": 1500},
    "cumsum": {"rows": 5, "cols": 300},
    "dropout": {"total": 3001, "four": 1},
    "gather_rows": {"rows": 9, "cols": 70, "vocabulary": 20},
    "gru_scan": {"batch": 2, "time": 9, "width": 50},
    "histogram": {"groups": 2, "length": 700, "bins": 16},
    "layernorm_bwd_dx": {"rows": 3, "cols": 700},
    "matmul_fma": {"M": 20, "N": 33, "K": 50},
    "matmul_fp8": {"M": 20, "N": 48, "K": 80},
    "matmul_int8": {"M": 20, "N": 48, "K": 80},
    "matmul_persistent": {"M": 70, "N": 100, "K": 72},
    "matmul_splitk": {"M": 20, "N": 48, "K": 300},
    "matmul_tf32": {"M": 20, "N": 48, "K": 50},
    "matmul_tma": {"M": 40, "N": 72, "K": 80},
    "matmul_tma_host": {"M": 40, "N": 72, "K": 80},
    "matmul_w4a16": {"M": 20, "N": 48, "K": 256},
    "matvec": {"M": 9, "K": 300},
    "reduce_columns": {"M": 50, "N": 70},
    "rmsnorm": {"rows": 7, "cols": 200},
    "rnn_dot": {"batch": 9, "time": 5, "width": 32},
    "rope": {"tokens": 7, "heads": 3, "head": 64},
    "silu_and_mul": {"rows": 3, "cols": 200},
    "softmax_online": {"rows": 3, "cols": 700},
    "ssm_scan": {"rows": 5, "time": 100},
    "stencil": {"M": 11, "N": 50},
    "transpose": {"M": 50, "N": 37},
    "welford": {"rows": 3, "cols": 70},
}
"""Shapes small enough for the interpreter, ragged where the kernel allows it."""


def family(name: str) -> ModuleType:
    """A kernel module by its name."""
    return importlib.import_module(f"benchmarks.families.{name}")


def interpreted_error(name: str) -> float:
    """Error relative to the reference, of a config from the middle of the space.

    Triton's interpreter multiplies bf16 as integers, so that fp16 stands in for it.
    """
    module = family(name)
    shape = SMALL[name]
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


@pytest.fixture(scope="module")
def errors() -> dict[str, float]:
    """Every kernel's error in an interpreter of its own, which no compile can share."""
    environ = {**os.environ, "TRITON_INTERPRET": "1"}
    command = [sys.executable, "-W", "ignore", "-m", "tests.test_families"]
    done = subprocess.run(
        command, cwd=ROOT, env=environ, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def test_every_family_is_tried() -> None:
    """The small shapes name all modules of the package."""
    names = {m.name for m in pkgutil.iter_modules([str(ROOT / "benchmarks" / "families")])}
    assert set(SMALL) == names


@pytest.mark.parametrize("name", SMALL)
def test_family_computes_what_its_reference_says(name: str, errors: dict[str, float]) -> None:
    """A kernel run by Triton's interpreter agrees with its reference."""
    assert errors[name] < 5e-3


@pytest.mark.parametrize("name", SMALL)
def test_family_fits_its_measurement(name: str) -> None:
    """Every shape has 60 to 300 configs and tensors of less than 1 GB in all."""
    module = from_python_module(family(name))
    for shape in module.shapes:
        module.check_shape(shape)
        assert 60 <= len(list(module.space().configs(**shape))) <= 300
        arguments = module.problem(shape, module.dtypes[0], "meta").arguments.values()
        # A tensor descriptor has its tensor as `base`.
        tensors = [v.base if hasattr(v, "block_shape") else v for v in arguments]
        assert sum(t.nbytes for t in tensors if hasattr(t, "nbytes")) < 1e9


@pytest.mark.parametrize("name", SMALL)
def test_family_compiles_for_h200(name: str, tmp_path: Path) -> None:
    """A config from the middle of each space compiles on the first and the last shape."""
    module = from_python_module(family(name))
    settings = Settings(cache_dir=tmp_path, jobs=1)
    for shape in (module.shapes[0], module.shapes[-1]):
        problem = module.problem(shape, module.dtypes[-1], "meta")
        configs = list(module.space().configs(**shape))
        request = Lowering(problem, load_target("H200"), 30).request(configs[len(configs) // 2])
        assert isinstance(compile_one(request, settings), Artifact), request


if __name__ == "__main__":
    print(json.dumps({name: interpreted_error(name) for name in SMALL}))  # noqa: T201
