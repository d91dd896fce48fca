"""Memory that tuning may take: what is left, what is refused, and what is given back."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch

from asmtune.base.errors import MeasureError, MemoryShortError
from asmtune.measure import memory
from asmtune.measure.bench.argument_codec import StorageRange
from asmtune.runtime.misses.background import _require_room

GIB = 1 << 30


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """A GPU of 80 GiB: 10 are free, PyTorch has taken 30 and uses 25 of them."""
    state = SimpleNamespace(free=10 * GIB, reserved=30 * GIB, used=25 * GIB, share=1.0, emptied=0)

    def empty() -> None:
        state.emptied += 1
        state.free += state.reserved - state.used
        state.reserved = state.used

    answers = {
        "is_available": lambda: True,
        "is_initialized": lambda: True,
        "mem_get_info": lambda *_: (state.free, 80 * GIB),
        "memory_reserved": lambda *_: state.reserved,
        "memory_allocated": lambda *_: state.used,
        "get_per_process_memory_fraction": lambda *_: state.share,
        "empty_cache": empty,
    }
    for name, answer in answers.items():
        monkeypatch.setattr(torch.cuda, name, answer)
    return state


def test_free_bytes_are_those_that_a_process_may_take(gpu: SimpleNamespace) -> None:
    """Cached blocks count as free, and a limit of the process as the end."""
    assert memory.free_bytes() == 15 * GIB
    gpu.share = 26 / 80
    assert memory.free_bytes("cuda:0") == GIB
    gpu.share = 0.1
    assert memory.free_bytes() == 0


def test_copies_go_to_the_host_and_no_further(
    gpu: SimpleNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A copy without room on the GPU lies on the host; without room there it is refused."""
    gpu.share = 26 / 80  # 1 GiB is left
    device = SimpleNamespace(type="cuda")
    with monkeypatch.context() as patched:
        patched.setattr(torch, "empty", lambda length, **given: (length, given["device"]))
        assert memory.allocated(400 << 20, device) == ((400 << 20, device), False)
    monkeypatch.setattr(memory, "host_bytes", lambda: 3 * GIB)
    held, on_host = memory.allocated(700 << 20, device)
    assert (held.device.type, on_host) == ("cpu", True)
    monkeypatch.setattr(memory, "host_bytes", lambda: GIB)
    with pytest.raises(MemoryShortError, match=r"neither .*: 700 MiB, and 1 GiB of the host"):
        memory.allocated(700 << 20, device)


def test_memory_of_the_host_is_that_of_the_container(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    """A container's limit counts where it is less, and files that it has cached count as free."""
    whole = memory.host_bytes()
    assert whole > 0
    monkeypatch.setattr(memory, "_CGROUP", tmp_path)
    (tmp_path / "memory.max").write_text("5000\n")
    (tmp_path / "memory.current").write_text("2000\n")
    assert memory.host_bytes() == 3000
    (tmp_path / "memory.stat").write_text(
        "anon 700\nshmem 50\ninactive_file 900\nactive_file 300\n"
    )
    assert memory.host_bytes() == 4200
    (tmp_path / "memory.max").write_text("max\n")
    assert memory.host_bytes() > 3000


def test_another_process_needs_memory_of_the_driver(gpu: SimpleNamespace) -> None:
    """What PyTorch caches here is room for a process that times once it is given back."""
    memory.require_device(0, 10 * GIB, "a process")
    assert gpu.emptied == 0
    memory.require_device(0, 15 * GIB, "a process")
    assert gpu.emptied == 1
    with pytest.raises(MemoryShortError, match=r"a process: 16 GiB, and 15 GiB are free"):
        memory.require_device(0, 16 * GIB, "a process")
    assert gpu.emptied == 1


@pytest.mark.parametrize(("mib", "fits"), [(1900, True), (7000, False)])
def test_copies_for_the_background_leave_room(gpu: SimpleNamespace, mib: int, fits: bool) -> None:
    """Two copies take a fourth of free memory at most, since the program goes on meanwhile."""
    region = StorageRange(0, mib << 20, "cuda", pinned=False)
    region.whole = SimpleNamespace(device="cuda:0")
    if fits:
        _require_room([region])
        return
    with pytest.raises(MemoryShortError, match=r"two copies of them take 13.7 GiB, and 15 GiB"):
        _require_room([region])


def test_memory_is_given_back(gpu: SimpleNamespace, monkeypatch: pytest.MonkeyPatch) -> None:
    """What PyTorch has cached more than before goes back, and what it has not found is told."""
    with memory.returning_memory():
        pass
    assert gpu.emptied == 0
    text = r"CUDA out of memory\. Tried; free"

    @memory.returning_memory()
    def take() -> None:
        gpu.reserved += GIB
        raise torch.OutOfMemoryError("CUDA out of memory. Tried\nand more")

    with pytest.raises(MeasureError, match=text):
        take()
    assert gpu.emptied == 1

    def refuse() -> None:
        raise RuntimeError("captures_underway.empty() INTERNAL ASSERT FAILED")

    monkeypatch.setattr(torch.cuda, "empty_cache", refuse)
    with memory.returning_memory():  # what was tuned counts more
        gpu.reserved += GIB
