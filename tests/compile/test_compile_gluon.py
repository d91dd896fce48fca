"""Gluon kernels compile offline: their front end makes TTGIR, a config at a time."""

from __future__ import annotations

import pytest
import torch

from asmtune.base.settings import Settings
from asmtune.compile.lower import Lowering, LowerRequest
from asmtune.compile.pool import compile_one
from asmtune.core.config import Config
from asmtune.core.hardware.shipped import load_target
from asmtune.core.problem import Problem
from asmtune.core.records.artifacts import Artifact, Failure, Sketch
from tests import gluon_kernels as kernels
from tests.compile.making import accepted, sketch_one


def lowering(target: str = "H200", problem: Problem | None = None) -> Lowering:
    """The front end of a problem."""
    return Lowering(problem or kernels.scale_problem(), load_target(target), 30)


def request(config: Config, target: str = "H200") -> LowerRequest:
    """Lower `scale` with a config."""
    return accepted(lowering(target), config)


@pytest.mark.parametrize("target", ["A100", "H200", "B200", "RTX5090"])
def test_a_gluon_kernel_compiles_for_each_device(target: str, settings: Settings) -> None:
    """Its sketch is the TTGIR of its artifact, whose code is of the device."""
    lowered = request(Config({"BLOCK": 1024}, num_warps=4), target)
    artifact, sketch = compile_one(lowered, settings), sketch_one(lowered, settings)
    assert isinstance(artifact, Artifact), artifact
    assert isinstance(sketch, Sketch), sketch
    assert sketch.ttgir == artifact.outputs["ttgir"]
    assert artifact.cubin.startswith(b"\x7fELF")
    assert artifact.outputs["ttir"] == lowered.ttir
    assert '"ttg.num-warps" = 4' in lowered.ttir


def test_the_front_end_runs_again_for_what_its_text_names() -> None:
    """Warps, clusters and the cap are in the text from the start; stages are not."""
    front = lowering()

    def text(**options: int) -> str:
        lowered = accepted(front, Config({"BLOCK": 1024}, **options))
        assert lowered.gluon
        assert not lowered.has_dot
        return lowered.ttir

    assert text(num_warps=4) == text(num_warps=4, num_stages=5)
    assert "warpsPerCTA = [8]" in text(num_warps=8)
    assert "ttg.maxnreg = 64" in text(num_warps=4, maxnreg=64)
    assert {"num_warps", "num_ctas", "maxnreg"} <= front.options_read


def test_what_mlir_refuses_is_told_with_its_line(capfd: pytest.CaptureFixture[str]) -> None:
    """A layout without clusters in a launch with them is refused by name, and stderr is clean."""
    failure = lowering().request(Config({"BLOCK": 1024}, num_ctas=2))
    assert (failure.stage, failure.kind) == ("lower", "kernel")
    assert "gluon_kernels.py line" in str(failure)
    assert "Layout has 1 CTAs per CGA" in str(failure)
    sums = {"x_ptr": torch.empty(64, device="meta"), "y_ptr": torch.empty(1, device="meta")}
    problem = Problem(kernels.row_sum, {**sums, "columns": 64}, (1,))
    failure = lowering("MI300X", problem).request(Config({"BLOCK": 256}, num_warps=2))
    assert isinstance(failure, Failure)
    assert "line 9 of the kernel" in str(failure)
    assert "Layout has 32 threads per warp" in str(failure)
    assert capfd.readouterr() == ("", "")


def test_what_a_pass_refuses_is_told_first(settings: Settings) -> None:
    """A failure of the compiler's process begins with file, line and cause, not with the pass."""
    problem = Problem(kernels.undecided, {"x_ptr": torch.empty(64, device="meta"), "n": 64}, (1,))
    lowered = accepted(lowering(problem=problem), Config({"BLOCK": 64}, num_warps=4))
    for failure in (compile_one(lowered, settings), sketch_one(lowered, settings)):
        assert isinstance(failure, Failure)
        assert str(failure).startswith("compiler at ttgir: gluon_kernels.py line ")
        assert "Failed to infer" in str(failure)


def test_instructions_that_a_device_lacks_are_a_failure(settings: Settings) -> None:
    """Blackwell's products do not compile for Hopper: a failure of a stage, and no more."""
    half = [torch.empty(128, 128, device="meta", dtype=torch.float16) for _ in range(3)]
    blocks = {"a_desc": [128, 64], "b_desc": [64, 128], "c_desc": [128, 128]}
    pairs = zip(half, blocks.items(), strict=True)
    arguments = {name: kernels.descriptor(tensor, block) for tensor, (name, block) in pairs}
    problem = Problem(kernels.one_tile, {**arguments, "K": 128}, (1,))
    lowered = lowering(problem=problem).request(Config({"TILE": 128}, num_warps=4))
    # Newer versions of Triton refuse it in the front end, 3.6 in LLVM.
    failure = lowered if isinstance(lowered, Failure) else compile_one(lowered, settings)
    assert failure.kind in ("kernel", "compiler")
    assert "tcgen05" in str(failure)
