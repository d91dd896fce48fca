"""The GPU that is assumed: what it answers, what it takes over, and that nothing of it lasts."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from typing import Any

import pytest
import torch
import triton
from triton.runtime.driver import driver
from triton.runtime.jit import JITFunction, KernelInterface

from asmtune.core.hardware.shipped import load_target
from asmtune.runtime.offline.host_arguments import HostArguments
from asmtune.runtime.offline.host_functions import assumed_gpu, host_launches
from asmtune.triton_api.assumed_gpu import AssumedGpuError, Launch
from asmtune.triton_api.tensors import own_gpu_kernel
from tests.sample_kernels import scale

QUESTIONS: dict[str, tuple[Callable[[], Any], Any]] = {
    "available": (lambda: torch.cuda.is_available(), True),
    "count": (lambda: torch.cuda.device_count(), 1),
    "current": (lambda: torch.cuda.current_device(), 0),
    "capability": (lambda: torch.cuda.get_device_capability(), (9, 0)),
    "name": (lambda: torch.cuda.get_device_name(), "NVIDIA H200"),
    "SMs": (lambda: torch.cuda.get_device_properties(0).multi_processor_count, 132),
    "major": (lambda: torch.cuda.get_device_properties("cuda").major, 9),
    "bf16": (lambda: torch.cuda.is_bf16_supported(), True),
    "version": (lambda: bool(torch.version.cuda), True),
    "device": (lambda: driver.active.get_active_torch_device(), torch.device("cuda", 0)),
    "arch": (lambda: driver.active.get_current_target().arch, 90),
    "shared": (lambda: driver.active.utils.get_device_properties(0)["max_shared_mem"], 232448),
    "vendor": (lambda: shutil.which("nvidia-smi"), "/usr/bin/nvidia-smi"),
    "another": (lambda: shutil.which("no-such-smi"), None),
    "interface": (lambda: driver.active.get_device_interface().current_device(), 0),
    "driver's current": (lambda: driver.active.get_current_device(), 0),
    "stream": (lambda: driver.active.get_current_stream(0), 0),
}


def asked(question: Callable[[], Any]) -> Any:
    """Return the answer, or the type of the error."""
    try:
        return question()
    except (RuntimeError, AssertionError) as error:
        return type(error)


def test_it_answers_for_its_target_and_no_longer() -> None:
    """Questions are answered for the target inside, and as before outside, also after an error."""
    names = ("run", "__getitem__")
    classes = [dict(vars(kind)) for kind in (KernelInterface, JITFunction)]
    before = {name: asked(question) for name, (question, _) in QUESTIONS.items()}
    gpu = assumed_gpu(load_target("H200"))
    inside, unheard = {}, []

    def work() -> None:
        with gpu.active():
            for name, (question, _) in QUESTIONS.items():
                gpu.was_asked = False
                inside[name] = asked(question)
                unheard.extend([name] * (not gpu.was_asked))
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        work()
    assert inside == {name: expected for name, (_, expected) in QUESTIONS.items()}
    assert unheard == ["version", "another"]
    assert {name: asked(question) for name, (question, _) in QUESTIONS.items()} == before
    for kind, own in zip((KernelInterface, JITFunction), classes, strict=True):
        assert [vars(kind).get(name) for name in names] == [own.get(name) for name in names]


def kept() -> list[tuple[object, list[str]]]:
    """What Triton keeps in memory of the kernel's compiles, by device."""
    return [(device, sorted(caches[0])) for device, caches in scale.device_caches.items()]


def test_launches_are_handed_over_and_nothing_is_timed() -> None:
    """Each way to launch hands over kernel, grid and arguments; a timing is refused."""
    gpu, heard = assumed_gpu(load_target("H200")), list[Launch]()
    gpu.launched = heard.append
    tuned = triton.autotune([triton.Config({"BLOCK": 64})], key=[])(scale)
    x, before = torch.empty(256, device="meta"), kept()
    with gpu.active():
        scale[(4,)](x, x, 256, BLOCK=64)
        tuned.run(x, x, 256, grid=(4,), warmup=False)
        compiled = scale.warmup(x, x, 256, BLOCK=64, num_warps=2, grid=(1,))
        compiled._init_handles()
        compiled[(4,)](x, x, 256, 64)
        with pytest.raises(AssumedGpuError, match="times"):
            triton.testing.do_bench(lambda: None)
    assert compiled.n_regs in range(8, 65)
    assert compiled.n_spills == 0
    assert compiled.metadata.num_warps == 2
    assert [(one.kernel, one.grid, len(one.args), one.kwargs) for one in heard] == [
        (scale, (4,), 3, {"BLOCK": 64}),
        (tuned, (4,), 3, {}),
        (scale, (4,), 4, {"num_warps": 2}),
    ]
    assert kept() == before


def launched(x: torch.Tensor) -> torch.Tensor:
    """Launch a kernel on a GPU's tensor, which is what it must be told to have."""
    assert x.is_cuda
    scale[(4,)](x, y := torch.empty_like(x), 256, BLOCK=64)
    return y


@torch.library.custom_op("asmtune_tests::launched", mutates_args=())
def custom(x: torch.Tensor) -> torch.Tensor:
    """Launch it in an operator that PyTorch knows."""
    return launched(x)


custom.register_fake(torch.empty_like)

library = torch.library.Library("asmtune_tests", "FRAGMENT")
library.define("of_cuda(Tensor x) -> Tensor")
library.impl("of_cuda", launched, "CUDA")


def test_an_operators_own_gpu_kernel() -> None:
    """What Python registered is found, by operator or only overload; PyTorch's own is not."""
    for op in (torch.ops.asmtune_tests.of_cuda, torch.ops.asmtune_tests.launched.default):
        assert own_gpu_kernel(op) is not None
    assert own_gpu_kernel(torch.ops.aten.add.Tensor) is None
    assert own_gpu_kernel(torch.add) is None


def in_streams(x: torch.Tensor) -> torch.Tensor:
    """Launch it in a stream of its own, between events, in a range of a profiler."""
    side, event = torch.cuda.Stream(device=x.device), torch.cuda.Event(enable_timing=True)
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.device_of(x), torch.cuda.stream(side), torch.cuda.nvtx.range("scale"):
        y = launched(x)
    side.record_event().synchronize()
    event.record()
    return y


def in_a_graph(x: torch.Tensor) -> None:
    """Launch it while a graph is captured."""
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        launched(x)
    graph.replay()


def timed(x: torch.Tensor) -> float:
    """Launch it to be timed."""
    return float(triton.testing.do_bench(lambda: launched(x)))


FORMS: dict[str, Callable[[torch.Tensor], Any]] = {
    "custom_op": lambda x: custom(x) + 1,
    "library": lambda x: torch.ops.asmtune_tests.of_cuda(x),
    "streams": in_streams,
    "graph": in_a_graph,
    "timed": timed,
    "compiled before": torch.compile(launched),
    "compiled inside": lambda x: torch.compile(dynamic=False)(launched)(x),
}


@pytest.mark.parametrize("form", FORMS)
def test_a_launch_is_found_under_what_programs_wrap_it_in(form: str) -> None:
    """A host function's launch is found in operators, streams, graphs, timings, compiled code."""
    x = torch.empty(256, device="meta")
    gpu = assumed_gpu(load_target("H200"))
    (found,) = host_launches(FORMS[form], HostArguments.of(x), gpu, form)
    assert found.problem.arguments["x_ptr"].shape == (256,)
    assert found.problem.grid == (4,)
