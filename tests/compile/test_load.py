"""Loading: a launch of Triton's own kernel handle, made without compiling."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch
import triton
from triton.backends.nvidia import driver

from asmtune.base.settings import Settings
from asmtune.compile import load
from asmtune.compile.load import Binary
from asmtune.compile.lower import Lowering
from asmtune.core.config import Config
from asmtune.core.hardware.model import Target
from asmtune.core.hardware.shipped import load_target
from asmtune.core.records.artifacts import Failure
from asmtune.triton_api import launching
from tests.compile.making import compiled
from tests.gpu import argument_kernels
from tests.sample_kernels import scale_problem


@pytest.mark.parametrize(("machine", "code"), [("H200", "cubin"), ("MI355X", "hsaco")])
def test_handle_has_the_artifacts_code(machine: str, code: str, settings: Settings) -> None:
    """Triton's handle carries the artifact's code, name and launch figures, also for AMD."""
    lowering = Lowering(scale_problem(), load_target(machine), 30)
    config = Config({"BLOCK": 256}, num_warps=8)
    artifact = compiled(lowering, config, settings)
    binary = Binary.of(lowering, config, artifact)
    assert not isinstance(binary, Failure)
    kernel = binary.compiled()
    assert kernel.asm[code] == kernel.kernel == artifact.cubin
    assert artifact.cubin.startswith(b"\x7fELF")
    assert kernel.name == artifact.entry == "scale"
    assert (kernel.metadata.num_warps, kernel.metadata.shared) == (8, artifact.shared_bytes)
    assert kernel.metadata.target.arch == lowering.machine[1]


def test_launch_passes_all_arguments(
    target: Target, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A launch has the problem's grid and its parameters in order; `prepare` runs the hook."""
    launches: list[Any] = []

    class Recorder:
        def __getitem__(self, grid: Any) -> Any:
            return lambda *arguments: launches.append((grid, arguments))

    hooked: list[dict[str, Any]] = []
    problem, config = scale_problem(), Config({"BLOCK": 256}, pre_hook=hooked.append)
    lowering = Lowering(problem, target, 30)
    artifact = compiled(lowering, config, settings)
    monkeypatch.setattr(Binary, "compiled", lambda _: Recorder())
    launch = load.load(lowering, config, artifact)
    assert not isinstance(launch, Failure)
    hooked.clear()
    launch.run()
    given = problem.arguments
    assert launches == [((4, 1, 1), (given["x_ptr"], given["y_ptr"], 4096, 256))]
    assert hooked == []
    launch.prepare()
    assert (hooked[0]["BLOCK"], hooked[0]["grid"], hooked[0]["warmup"]) == (256, (4, 1, 1), False)


class Recorded:
    """The arguments of Triton's launcher, recorded where it would be built for the GPU."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.made: list[Any] = []
        monkeypatch.setattr(driver, "library_dirs", list)
        if hasattr(driver, "make_launcher"):  # 3.6 builds one from C source for each signature

            def compile_module(src: str, **_: Any) -> Any:
                self.made.append(src)
                return SimpleNamespace(launch=lambda *_: None)

            monkeypatch.setattr(driver, "compile_module_from_src", compile_module)
        else:  # 3.9 has one for all, which is given the types
            utils = SimpleNamespace(launch=lambda *_: None)
            active = SimpleNamespace(active=SimpleNamespace(utils=utils))
            monkeypatch.setattr(triton.runtime, "driver", active)
            for name in ("annotate_arguments", "make_kernel_signature"):
                monkeypatch.setattr(driver, name, self._take)

    def _take(self, signature: Any) -> None:
        self.made.append(list(signature))


@pytest.mark.parametrize("which", ["mixed", "descriptors", "made on the device"])
def test_a_launcher_needs_no_source(
    which: str, target: Target, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Triton makes the same launcher without the kernel's source, and early, for another config."""
    problem, (config, *_) = argument_kernels.problems("cpu")[which]
    lowering = Lowering(problem, target, 30)
    artifact = compiled(lowering, config, settings)
    binary, specialised = Binary.of(lowering, config, artifact), lowering.specialise(config)
    assert not isinstance(binary, Failure)
    assert not isinstance(specialised, Failure)
    kernel, recorded = binary.compiled(), Recorded(monkeypatch)
    for source in (kernel.src, specialised.source):
        driver.CudaLauncher(source, kernel.metadata)
    active = SimpleNamespace(launcher_cls=driver.CudaLauncher)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(launching, "driver", SimpleNamespace(active=active))
    other = Config(config.kwargs, num_warps=config.num_warps * 2)
    load.build_launcher(lowering, other, compiled(lowering, other, settings))
    third = len(recorded.made) // 3
    assert third >= 1
    assert recorded.made == recorded.made[:third] * 3
