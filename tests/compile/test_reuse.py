"""An artifact in the place of a second compile: Triton's cache holds exactly what it would hold."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from triton import knobs
from triton.backends.nvidia import compiler as stages
from triton.tools.tensor_descriptor import TensorDescriptor

from asmtune.base.settings import Settings
from asmtune.compile.artifacts import ArtifactCache
from asmtune.compile.load import hand_to_triton
from asmtune.compile.lower import Lowering
from asmtune.core.config import Config
from asmtune.core.hardware.shipped import load_target
from asmtune.core.problem import Problem
from asmtune.triton_api.jit_functions import jit_function
from tests import gluon_kernels, tuning_support
from tests.compile.making import accepted, compiled
from tests.compile.triton_reference import compiled_by_triton, launching_on
from tests.sample_kernels import (
    described_sums,
    product_problem,
    row_sum_problem,
    scale_problem,
    strided,
)

TILE = {"BLOCK_M": 64, "BLOCK_N": 64, "BLOCK_K": 32}
SCALED = Config({"BLOCK": 256}, num_warps=2)


def _set_block(values: dict[str, Any]) -> None:
    for name in ("a", "c"):
        values[name].block_shape = [values["BLOCK"], values["BLOCK"]]


def _described_problem() -> Problem:
    a, c = (
        TensorDescriptor.from_tensor(torch.empty(256, 64, dtype=torch.float16), [1, 1])
        for _ in range(2)
    )
    return Problem(described_sums, {"a": a, "c": c, "rows": 256}, (1,))


def _strided_problem() -> Problem:
    x, y = torch.empty(4096), torch.empty(4096)
    return Problem(strided, {"x_ptr": x, "y_ptr": y, "tiles": 16}, (4,))


KERNELS: dict[str, tuple[Callable[[], Problem], Config]] = {
    "scale": (scale_problem, SCALED),
    "sum of a row, capped": (row_sum_problem, Config({"BLOCK": 512}, maxnreg=64)),
    "loop with a named variable": (_strided_problem, Config({"BLOCK": 256}, num_warps=2)),
    "cluster": (scale_problem, Config({"BLOCK": 512}, num_ctas=2)),
    "Gluon": (gluon_kernels.scale_problem, Config({"BLOCK": 1024}, num_warps=4)),
    "descriptors": (_described_problem, Config({"BLOCK": 64}, pre_hook=_set_block)),
    "product of bfloat16, capped": (
        lambda: product_problem(torch.bfloat16),
        Config(TILE, num_warps=8, maxnreg=128),
    ),
}


@dataclass
class Place:
    """A config with its artifact, and a folder of Triton's cache of its own."""

    problem: Problem
    config: Config
    lowering: Lowering
    cache: ArtifactCache
    triton: Path

    @classmethod
    def of(cls, problem: Problem, config: Config, settings: Settings, folder: Path) -> Place:
        """Compile a config as a worker does."""
        lowering = Lowering(problem, load_target("H200"), 30)
        compiled(lowering, config, settings)
        return cls(problem, config, lowering, ArtifactCache.of(settings), folder)

    def hand(self, capability: int = 90) -> bool:
        """Hand the artifact over where a GPU of a capability would launch."""
        with launching_on(capability):
            return hand_to_triton(self.lowering, self.config, self.cache)

    def launch(self) -> Any:
        """Compile what a new process's launch would, or find it in Triton's cache."""
        jit_function(self.problem.kernel).device_caches.clear()
        return compiled_by_triton(self.problem, self.config, 90)

    def files(self) -> dict[str, bytes]:
        """Read all that Triton's cache holds of the kernel."""
        paths = [path for path in sorted(self.triton.rglob("*")) if path.is_file()]
        return {str(path.relative_to(self.triton)): path.read_bytes() for path in paths}

    def forget(self) -> None:
        """Empty Triton's cache."""
        shutil.rmtree(self.triton, ignore_errors=True)
        jit_function(self.problem.kernel).device_caches.clear()


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache of Triton's."""
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path / "triton"))
    return tmp_path / "triton"


@pytest.fixture
def scaled(empty_settings: Settings, folder: Path) -> Place:
    """The smallest kernel, compiled."""
    return Place.of(scale_problem(), SCALED, empty_settings, folder)


class _NeverAgain:
    """Stands for LLVM, which may not run."""

    def __getattr__(self, name: str) -> Any:
        raise AssertionError(f"the compiler runs {name} again")


@pytest.fixture
def block(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Take LLVM and ptxas from Triton from the call on."""

    def blocked() -> None:
        monkeypatch.setattr(stages, "llvm", _NeverAgain())
        version = SimpleNamespace(check_output=subprocess.check_output)  # ptxas tells it
        monkeypatch.setattr(stages, "subprocess", version)

    return blocked


@pytest.mark.slow(seconds=2)
@pytest.mark.parametrize("name", KERNELS)
def test_tritons_cache_holds_what_triton_writes(
    name: str, empty_settings: Settings, folder: Path, block: Callable[[], None]
) -> None:
    """Every file, binary and metadata are equal to the byte, and the launch compiles nothing."""
    make, config = KERNELS[name]
    place = Place.of(make(), config, empty_settings, folder)
    own = place.launch()
    expected = place.files()
    assert {"source", "ttgir", "llir", "ptx", "cubin"} <= {n.rpartition(".")[2] for n in expected}
    place.forget()
    block()
    assert place.hand()
    assert place.files() == expected
    handed = place.launch()
    assert handed.asm == own.asm
    assert handed.metadata == own.metadata


BACKEND, OWN_STAGE = stages.CUDABackend, stages.CUDABackend.make_cubin
WATCHES: dict[str, Callable[[pytest.MonkeyPatch], None]] = {
    "hook": lambda p: p.setattr(knobs.runtime, "add_stages_inspection_hook", lambda *_: None),
    "listener": lambda p: p.setattr(knobs.compilation, "listener", lambda **_: None),
    "knob": lambda p: p.setitem(vars(knobs.compilation), "disable_line_info", True),
    "stage": lambda p: p.setattr(
        stages.CUDABackend, "make_cubin", lambda *given: OWN_STAGE(*given)
    ),
    "dump": lambda p: p.setenv("TRITON_KERNEL_DUMP", "1"),
    "override": lambda p: p.setenv("TRITON_KERNEL_OVERRIDE", "1"),
    "compile": lambda p: p.setenv("TRITON_ALWAYS_COMPILE", "1"),
    "dump of MLIR": lambda p: p.setenv("MLIR_ENABLE_DUMP", "1"),
    "line numbers": lambda p: p.setenv("TRITON_DISABLE_LINE_INFO", "1"),
}


@pytest.mark.parametrize("watch", WATCHES)
def test_a_user_who_watches_sees_triton_compile(
    watch: str, scaled: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With hooks, dumps, overrides, knobs, patches or other variables nothing is handed over."""
    WATCHES[watch](monkeypatch)
    assert not scaled.hand()
    assert scaled.files() == {}


@pytest.mark.parametrize("output", ["ttgir", "llir", "ptx"])
def test_another_text_is_not_handed_over(output: str, scaled: Place) -> None:
    """TTGIR that Triton does not make, or an artifact that lacks a stage, leads to a compile."""
    request = accepted(scaled.lowering, scaled.config)
    artifact = scaled.cache.get(request.digest)
    outputs = dict(artifact.outputs)
    if output == "ttgir":
        outputs["ttgir"] = outputs["ttgir"].replace("2.000000e+00", "3.000000e+00")
        assert outputs != artifact.outputs
    else:
        outputs[f"no {output}"] = outputs.pop(output)
    changed = replace(artifact, outputs=outputs)
    scaled.cache.put(request.digest, changed)
    assert not scaled.hand()
    own = scaled.launch()
    assert own.asm["ttgir"] == artifact.outputs["ttgir"]
    assert own.asm["cubin"] == artifact.cubin


@pytest.mark.slow(seconds=5)
@pytest.mark.parametrize("way", ["tuned", "predicted"])
def test_the_launch_after_a_tuning_compiles_nothing(
    way: str, folder: Path, tmp_path: Path, block: Callable[[], None]
) -> None:
    """What asmtune chooses, by time or by rank, is in Triton's cache before it is launched."""
    tuner = tuning_support.workshop(tmp_path / "asmtune", tuning_support.HostMachine())
    request = tuning_support.request(tuner)
    block()
    with launching_on(90):
        if way == "predicted":
            config = tuner.predict(request).config
        else:
            record = tuner.resolve(request).record
            assert record is not None
            config = record.winner
    jit_function(request.problem.kernel).device_caches.clear()
    compiled = compiled_by_triton(request.problem, config, 90)
    assert compiled.metadata.num_warps == config.num_warps
    written = {file.suffix for file in folder.rglob("*") if file.is_file()}
    assert {".source", ".ttir", ".ttgir", ".llir", ".ptx", ".cubin", ".json"} == written
