"""Triton's interpreter computes with bf16 and FP8 as a GPU does, while asmtune runs kernels."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest
import triton.language as tl

from asmtune.triton_api.interpreter import _shared_dtypes
from tests.interpreter import Interpreter

CHECKS = "tests.triton_api.interpreted_floats"


@pytest.mark.slow
@pytest.mark.parametrize("name", ["e4m3", "e5m2", "bf16"])
def test_casts_are_exact(name: str, interpreter: Interpreter) -> None:
    """Casts round as PyTorch's do, saturate in FP8, and are exact on the way back."""
    found = interpreter.call(f"{CHECKS}:wrong_casts", name, True)
    assert found == {"near": 0, "towards zero": 0, "wide": 0}


@pytest.mark.slow
@pytest.mark.parametrize("name", ["e4m3", "e5m2", "bf16"])
def test_triton_still_needs_the_correction(name: str, interpreter: Interpreter) -> None:
    """Triton's own interpreter rounds wrongly; once it does not, the correction can go."""
    assert interpreter.call(f"{CHECKS}:wrong_casts", name, False)["near"] > 1000


@pytest.mark.slow
def test_bf16_is_computed_in_fp32_and_rounded(interpreter: Interpreter) -> None:
    """Arithmetic, comparisons, reductions and matrix products of bf16 are those of its numbers."""
    found = interpreter.call(f"{CHECKS}:wrong_bf16")
    assert found == dict.fromkeys(found, 0)
    assert len(found) == 9


@pytest.mark.slow
def test_a_mask_may_be_of_a_block_and_a_condition(interpreter: Interpreter) -> None:
    """The condition's block is of booleans: Triton 3.9 refuses other masks."""
    stored, dtype = interpreter.call(f"{CHECKS}:masked")
    assert stored == [0, 1, 2, 3, 4, -1, -1, -1]
    assert dtype == "bool"


@pytest.mark.slow
def test_nothing_stays_changed() -> None:
    """Once it ends, Triton's interpreter is as it was, and a quick run gives what its own gives."""
    code = (
        f"import json; from {CHECKS} import left_after, quick_and_plain; "
        "print(json.dumps([left_after(), *quick_and_plain()]))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "TRITON_INTERPRET": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    left, quick, plain = json.loads(done.stdout)
    assert left == []
    assert quick == plain


def test_each_dtype_of_numpy_is_found_once() -> None:
    """Blocks and pointers of a dtype share what the interpreter finds for its scalar."""
    asked: list[str] = []
    find = _shared_dtypes(lambda dtype: asked.append(dtype.name) or dtype.name)
    block = tl.block_type(tl.float16, [4])
    assert [find(kind) for kind in (tl.float16, tl.int8, block, tl.int8)] == [
        *("fp16", "int8", "fp16", "int8")
    ]
    assert asked == ["fp16", "int8"]


@pytest.mark.slow
def test_programs_run_backwards(interpreter: Interpreter) -> None:
    """The programs of a grid run from the first to the last, and from the last to the first."""
    assert interpreter.call(f"{CHECKS}:orders") == [[0, 1, 2, 3], [3, 2, 1, 0]]
