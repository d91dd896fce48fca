"""Contracts of Triton's driver and compiled kernels, where there is no GPU."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import triton
import triton.runtime._allocation
from triton import knobs
from triton.experimental.gluon.nvidia import hopper
from triton.runtime.driver import driver
from triton.tools import tensor_descriptor

from asmtune.triton_api import launching
from tests.compile.triton_reference import launching_on
from tests.triton_api import tiny_kernels
from tests.triton_api.tiny_kernels import tiny


@pytest.fixture
def kernel() -> Iterator[Any]:
    """The tiny kernel as Triton compiles it for sm_90."""
    with launching_on(90):
        yield tiny.warmup(torch.zeros(16), 16, grid=(1,), num_warps=2)


def test_facts_of_a_compiled_kernel(kernel: Any) -> None:
    """Facts that a launch needs are read off a kernel that was loaded; else there are none."""
    assert launching.launch_facts(SimpleNamespace()) is None
    loaded = SimpleNamespace(
        run=print, function=5, packed_metadata=(1,), metadata=kernel.metadata, src=kernel.src,
        asm=kernel.asm,
    )  # fmt: skip
    facts = launching.launch_facts(loaded)
    assert facts is not None
    assert (facts.relay, facts.function, facts.for_relay[:3]) == (print, 5, (5, (1,), None))
    assert (facts.threads, facts.shared, facts.is_native) == (64, 0, True)
    assert (facts.scratch[:2], facts.attributes, facts.maps) == ((0, 1), (1, False, False), ())
    assert facts.signature["x_ptr"] == "*fp32"
    assert ".entry tiny" in facts.ptx
    assert "tt.func public @tiny" in launching.ttir_of(kernel)
    assert launching.ttir_of(7) == ""


def test_facts_of_descriptors() -> None:
    """Host descriptors have two classes; maps of a kernel's are as the driver takes them."""
    made = [one.from_tensor for one in launching.descriptor_types()]
    tensor = torch.zeros(64, 64, dtype=torch.float8_e5m2)
    with launching_on(90):
        compiled = tiny_kernels.stored.warmup(made[0](tensor, [64, 64]), grid=(1,))
    loaded = SimpleNamespace(
        run=print, function=5, packed_metadata=(1,), metadata=compiled.metadata, src=compiled.src,
        asm=compiled.asm,
    )  # fmt: skip
    facts = launching.launch_facts(loaded)
    assert facts is not None
    assert facts.signature["target"].startswith(launching.DESCRIPTOR)
    assert facts.maps == (launching.TensorMap(2, 1, 0, (64, 64), False),)
    assert len(made) == 2


def test_descriptors_of_a_triton_that_we_do_not_know(monkeypatch: pytest.MonkeyPatch) -> None:
    """One with a field that our launches do not read is Triton's to launch."""

    @dataclass
    class Mirrored(tensor_descriptor.TensorDescriptor):
        mirrored: bool = False

    monkeypatch.setattr(tensor_descriptor, "TensorDescriptor", Mirrored)
    assert launching.descriptor_types() == (hopper.TensorDescriptor,)


def test_a_kernel_is_made_of_machine_code(kernel: Any) -> None:
    """Code, metadata and signature make a kernel that Triton launches, without a source."""
    metadata = {"name": "tiny", "num_warps": 2, "shared": 0, "num_ctas": 1}
    machine = ("cuda", 90, 32)
    made = launching.compiled_kernel(machine, "f00", b"code", metadata, kernel.src.signature)
    assert (made.kernel, made.name, made.hash) == (b"code", "tiny", "f00")
    assert (made.metadata.num_warps, made.metadata.target.arch) == (2, 90)


def test_the_launcher_of_a_kernel_is_built(monkeypatch: pytest.MonkeyPatch) -> None:
    """The driver's own class makes it, of the kernel's source and metadata."""
    made: list[Any] = []
    active = SimpleNamespace(launcher_cls=lambda *parts: made.append(parts))
    monkeypatch.setattr(driver, "_active", active)
    launching.build_launcher(SimpleNamespace(src=1, metadata=2))
    assert made == [(1, 2)]


def test_a_c_module_is_built() -> None:
    """A module of C is compiled, imported, and found again."""
    source = (
        "#include <Python.h>\n"
        'static struct PyModuleDef d = {PyModuleDef_HEAD_INIT, "tiny_c", 0, -1, 0};\n'
        "PyMODINIT_FUNC PyInit_tiny_c(void) { return PyModule_Create(&d); }\n"
    )
    assert launching.build_c_module(source, "tiny_c").__name__ == "tiny_c"


@pytest.mark.skipif(torch.cuda.is_available(), reason="needs a machine without a GPU")
def test_a_machine_without_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """No machine is active, and none is asked for."""
    monkeypatch.setattr(driver, "_active", None)
    assert launching.machine_in_use() is None
    assert launching.active_machine() is None
    assert launching.current_stream().device() == -1


def test_the_machine_of_the_active_driver(monkeypatch: pytest.MonkeyPatch) -> None:
    """Target, clock and device are those of Triton's active driver."""
    with launching_on(80):
        assert launching.active_machine() == launching.machine_in_use() == ("cuda", 80, 32)
    chosen: list[int] = []
    active = SimpleNamespace(
        get_benchmarker=lambda: len, get_current_device=lambda: 3, set_current_device=chosen.append
    )
    monkeypatch.setattr(driver, "_active", active)
    assert launching.driver_clock() is len
    launching.device_setter()()
    assert chosen == [3]


def test_the_functions_that_launch() -> None:
    """Kernels launch by these methods of Triton's classes."""
    assert [name for _, name in launching.launch_functions()] == ["run", "__getitem__"]
    assert all(callable(vars(owner)[name]) for owner, name in launching.launch_functions())


def test_memory_that_kernels_ask_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """An allocator is set for a while, and the program's own is left alone."""
    current = triton.runtime._allocation._allocator
    monkeypatch.setattr(torch, "empty", lambda size, **how: (size, how["dtype"]))
    assert not launching.has_allocator()
    with launching.allocating():
        assert launching.has_allocator()
        assert current.get()(64, 128, None) == (64, torch.int8)
        with launching.allocating():
            assert launching.has_allocator()
    assert not launching.has_allocator()


def test_hooks_and_globals_that_triton_looks_at(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lists of hooks are live; knobs, globals and constexprs are watched by their dicts."""
    _ = tiny.cache_key
    watched = launching.watched_by_triton(tiny)
    assert watched is not None
    assert (vars(tiny_kernels), "FACTOR") in watched
    assert (vars(tiny_kernels.FACTOR), "value") in watched
    assert (vars(tiny), "debug") in watched
    assert (vars(knobs.runtime), "launch_enter_hook") in watched
    lists = launching.hook_lists(tiny)
    assert not any(lists)
    tiny.add_pre_run_hook(print)
    try:
        assert [print] in lists
        assert launching.watched_by_triton(tiny) is None
    finally:
        tiny.pre_run_hooks.clear()
