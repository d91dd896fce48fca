"""Nothing goes through shared memory on its way between loads and stores that need not."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

import pytest

from asmtune.base.settings import Settings
from asmtune.core.config import Config
from asmtune.core.hardware.model import Target
from asmtune.core.kernel_module import load_kernel_module
from asmtune.core.records.artifacts import Artifact
from tests.kernels.made import artifact_of

Compile = Callable[[str, Mapping[str, int], str, Config], Artifact]

LOOP = re.compile(r"scf\.for.*?scf\.yield", re.DOTALL)


@pytest.fixture(scope="module")
def compiled(settings: Settings, target: Target) -> Compile:
    """Compile a kernel at a shape, dtype and config."""

    def compile_at(name: str, shape: Mapping[str, int], dtype: str, config: Config) -> Artifact:
        problem = load_kernel_module(name).problem(shape, dtype, "meta")
        return artifact_of(problem, config, settings, target)

    return compile_at


@pytest.mark.parametrize("dtype", ["fp32", "fp16"])
@pytest.mark.parametrize("cols", [782, 781])
def test_weights_meet_rows_of_odd_width(compiled: Compile, dtype: str, cols: int) -> None:
    """RMSNorm takes shared memory for one number a warp, and none for weights."""
    config = Config({"ROWS": 1, "BLOCK": 1024, "STAGES": 1}, num_warps=4)
    artifact = compiled("rmsnorm", {"rows": 64, "cols": cols}, dtype, config)
    assert artifact.shared_bytes == 4 * 4


@pytest.mark.parametrize("dtype", ["fp32", "fp16"])
@pytest.mark.parametrize("cols", [768, 781])
def test_walked_rows_stay_in_registers(compiled: Compile, dtype: str, cols: int) -> None:
    """RMSNorm's backward walks several rows at once, and turns none into another layout."""
    config = Config({"ROWS": 4, "BLOCK": 1024}, num_warps=8)
    artifact = compiled("rmsnorm_backward", {"rows": 4096, "cols": cols}, dtype, config)
    (loop,) = LOOP.findall(artifact.outputs["ttgir"])
    assert "tt.load" in loop
    assert "convert_layout" not in loop
