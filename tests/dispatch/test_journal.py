"""What is told of each key: to `asmtune run`, and to Triton's own knobs."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import triton

from asmtune import asm_autotune
from asmtune.runtime.events import KeyResolved, listening
from tests.dispatch.host_gpu import EFFORT, HostGpu, copy

N = 1024


def launch(n: int = N, blocks: tuple[int, ...] = (32, 64, 128), **options: Any) -> Any:
    """Two launches of one key with a kernel newly decorated."""
    configs = [triton.Config({"BLOCK": block}) for block in blocks]
    options = {"skip_tuning_below_us": None, "effort": EFFORT, **options}
    kernel = asm_autotune(configs, ["n"], **options)(copy)
    for _ in range(2):
        kernel[(8,)](torch.ones(n), torch.empty(n), n)
    return kernel


def test_each_key_is_told_once(gpu: HostGpu) -> None:
    """A key is told with what its tuning took, or as known to the store, and never again."""
    met: list[KeyResolved] = []
    with listening(met.append):
        launch()
        launch()
        launch(64, on_miss="predict")
    launch(128)
    tuned, known, predicted = met
    assert tuned.kernel == f"{copy.__module__}.copy"
    assert (tuned.how, tuned.compiled, tuned.timed) == ("tuned", 3, 3)
    assert tuned.seconds > 0
    assert (known.how, known.compiled, known.timed) == ("known", 0, 0)
    assert (predicted.how, predicted.timed) == ("predicted", 0)


@pytest.mark.parametrize("asked", [False, True])
def test_triton_print_autotuning(
    gpu: HostGpu,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    asked: bool,
) -> None:
    """With TRITON_PRINT_AUTOTUNING=1 one line on stdout tells what was tuned, else none."""
    monkeypatch.setattr(triton.knobs.autotuning, "print", asked)
    launch()
    launch()
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == asked
    for line in lines:
        assert line.startswith(f"asmtune: {copy.__module__}.copy at (1024,")
        assert "BLOCK=32" in line
