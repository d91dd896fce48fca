"""`asmtune new`: the files work as written, and bad input writes nothing."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest

from asmtune.base.errors import InputError
from asmtune.workshop.kernel_checks.new_kernel import write_kernel
from tests.interpreter import Interpreter

INTERPRETED = "tests.workshop.kernel_checks.interpreted"


@pytest.mark.slow(seconds=10)
def test_written_tests_pass(tmp_path: Path, interpreter: Interpreter) -> None:
    """The tests pass under the interpreter for each dtype."""
    write_kernel("shifted", tmp_path)
    outcomes = interpreter.call(f"{INTERPRETED}:run_tests", str(tmp_path))
    assert set(outcomes.values()) == {"passed"}, outcomes
    assert len(outcomes) == 3


@pytest.mark.slow(seconds=5)
def test_the_benchmark_exits_by_its_target(tmp_path: Path, interpreter: Interpreter) -> None:
    """It times what is right: 0 at its target, 1 under it, and 3 without a GPU."""
    write_kernel("timed_shift", tmp_path)
    run = partial(interpreter.call, f"{INTERPRETED}:run_benchmark", str(tmp_path), "timed_shift")
    code, printed = run(True, "--target", "1.5")
    assert (code, printed.count("2000.0 us, PyTorch 3000.0 us, speed 1.50\n")) == (0, 3)
    code, printed = run(True, "--target", "1.6")
    assert (code, printed.count("speed 1.50, under the target 1.6\n")) == (1, 3)
    code, printed = run(False)
    assert (code, printed.startswith("bench_timed_shift: no CUDA device here")) == (3, True)


@pytest.mark.slow(seconds=3)
def test_a_wrong_formula_is_found(tmp_path: Path, interpreter: Interpreter) -> None:
    """An edit of the kernel alone fails the written test, and has no time in the benchmark."""
    # The process keeps modules of tests by their names.
    module, *_ = write_kernel("wrong_shift", tmp_path)
    module.write_text(module.read_text().replace("x + w  # edit this line", "x - w  # edit this"))
    outcomes = interpreter.call(f"{INTERPRETED}:run_tests", str(tmp_path), "-k", "fp32")
    assert [text for text in outcomes.values() if "comparisons are wrong" not in text] == []
    code, printed = interpreter.call(
        f"{INTERPRETED}:run_benchmark", str(tmp_path), "wrong_shift", True
    )
    assert (code, "wrong, and not timed" in printed) == (1, True)
    assert " us" not in printed


@pytest.mark.parametrize(
    "name", ["2x", "class", "kernel", "json", "Config", "conftest", "_new", "out_ptr", "a b", ""]
)
def test_bad_names(name: str, tmp_path: Path) -> None:
    """A name that is none, or means something else, is one line that names it."""
    with pytest.raises(InputError) as caught:
        write_kernel(name, tmp_path)
    assert repr(name) in str(caught.value)
    assert "\n" not in str(caught.value)
