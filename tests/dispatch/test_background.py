"""Tuning in the background: the launch goes on at once, on arguments that nobody else touches."""

from __future__ import annotations

import contextlib
import gc
import subprocess
import sys
import threading
import warnings
import weakref
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from asmtune.base.errors import MeasureError, MemoryShortError
from asmtune.runtime.misses import background
from asmtune.runtime.misses.background import (
    BackgroundQueue,
    BackgroundWarning,
    copy_arguments,
    queue_of,
)
from asmtune.runtime.misses.lookups import Choice
from asmtune.runtime.misses.resolver import MissWarning, Resolver
from asmtune.tuning.session import Session
from tests import tuning_support as support
from tests.dispatch.host import PATIENCE_S, Host, Told, described, later, miss


def test_goes_on_at_once_and_switches_when_tuned(host: Host, told: Told) -> None:
    """The fallback is launched until the key is tuned, in another process; then the winner."""
    resolver, at = later(host, told), miss()
    held = threading.Event()
    queue_of(support.DEVICE).put(lambda: held.wait(PATIENCE_S))  # so that it is not faster than we
    assert described(resolver.resolve(at)) == ("fallback", False, support.DEFAULT)
    assert described(resolver.resolve(at)) == ("fallback", False, support.DEFAULT)
    held.set()
    assert described(told.next()) == ("tuned", True, support.BEST)
    assert described(resolver.resolve(at)) == ("tuned", True, support.BEST)
    assert described(host.resolver().resolve(at)) == ("known", True, support.BEST)
    assert [options.isolate for options in host.opened] == [True]


def test_the_arguments_are_copies(host: Host, told: Told) -> None:
    """Tuning sees the tensors as they were, touches no original, and keeps none alive."""
    resolver = later(host, told)
    held = threading.Event()
    queue_of(support.DEVICE).put(lambda: held.wait(PATIENCE_S))
    at = miss()
    tensors = {n: v for n, v in at.problem.arguments.items() if torch.is_tensor(v)}
    resolver.resolve(at)
    for tensor in tensors.values():
        tensor.fill_(-1.0)
    gone = weakref.ref(tensors["x_ptr"])
    del at, tensors, tensor
    gc.collect()
    assert gone() is None
    held.set()
    told.next()
    copies = told.choices[0][0].problem.arguments
    assert torch.equal(copies["x_ptr"], torch.arange(4096.0))
    assert torch.equal(copies["out_ptr"], torch.full((4096,), 7.0))


def test_each_key_once_and_one_after_another(
    host: Host, told: Told, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two keys are tuned in the order in which they were met, each once, never together."""
    tuning, together, order = threading.Lock(), [], []
    run = Session.run

    def seen(self: Session, job: Any, *rest: Any) -> Any:
        order.append(job.key.shape["n"])
        if not tuning.acquire(blocking=False):
            together.append(job)
        try:
            return run(self, job, *rest)
        finally:
            tuning.release()

    monkeypatch.setattr(Session, "run", seen)
    resolver, other = later(host, told), later(host, told)
    for _ in range(2):
        resolver.resolve(miss(4096))
    other.resolve(miss(8192))
    told.next()
    told.next()
    assert order == [4096, 8192]
    assert together == []


def test_a_small_problem_is_not_timed(
    host: Host, told: Told, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the default's TTIR shows to be too short for tuning gets the default, untimed."""
    monkeypatch.setattr("asmtune.predict.small._is_told", lambda _: False)
    later(host, told, skip_tuning_below_us="host").resolve(miss())
    assert described(told.next()) == ("small", True, support.DEFAULT)
    assert host.machine.timed == []


def test_failure_is_one_warning(host: Host, told: Told, monkeypatch: pytest.MonkeyPatch) -> None:
    """A key that cannot be tuned is told once, and goes on with what it had, for good."""
    raised: list[Exception] = [MeasureError("nothing ran"), ZeroDivisionError("a bug")]

    def fails(*_: Any) -> Any:
        raise raised[0]

    monkeypatch.setattr(Session, "run", fails)
    for n, text in ((4096, "nothing ran"), (8192, "ZeroDivisionError: a bug")):
        resolver = later(host, told)

        def settled(resolver: Resolver = resolver, n: int = n) -> Choice:
            resolver.resolve(miss(n))
            return told.next()

        with pytest.warns(MissWarning, match=rf"add at n={n}.*not tuned in the background.*{text}"):
            assert described(settled()) == ("fallback", True, support.DEFAULT)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            assert described(resolver.resolve(miss(n))) == ("fallback", True, support.DEFAULT)
        raised.pop(0)


def test_no_room_for_copies(host: Host, told: Told, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the arguments cannot be copied, one warning; the pick stands, nothing is tuned."""

    def full(*_: Any, **__: Any) -> Any:
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 1 GiB")

    monkeypatch.setattr(background, "placed", full)
    resolver = later(host, told)
    with pytest.warns(BackgroundWarning, match="cannot be copied: CUDA out of memory.*free memory"):
        assert described(resolver.resolve(miss())) == ("fallback", True, support.DEFAULT)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert resolver.resolve(miss()).final
    assert host.opened == []


@pytest.mark.parametrize("lacks", [0, 1])
def test_room_for_two_copies_beside_a_process(lacks: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """All regions of a GPU count twice, with what a process takes; not a byte more is asked for."""
    regions: list[Any] = [
        SimpleNamespace(device=kind, whole=SimpleNamespace(device=kind), nbytes=size)
        for kind, size in (("cuda", 1 << 20), ("cpu", 1 << 40), ("cuda", 3 << 20))
    ]
    free = (8 << 20) + background.PROCESS_BYTES + background.RESERVE_BYTES - lacks
    monkeypatch.setattr(background, "free_bytes", lambda _: free)
    with pytest.raises(MemoryShortError) if lacks else contextlib.nullcontext():
        background._require_room(regions)


def test_a_line_goes_on_after_what_nobody_foresaw() -> None:
    """Work after a piece that ended the thread is done all the same."""
    line, done = BackgroundQueue(), threading.Event()
    hook, threading.excepthook = threading.excepthook, lambda _: None
    try:
        line.put(lambda: 1 / 0)  # type: ignore[arg-type,return-value]
        line.put(done.set)
        if not done.wait(0.2):
            line.put(lambda: None)
        assert done.wait(PATIENCE_S)
    finally:
        threading.excepthook = hook


def test_leaving_ends_what_is_tuned(
    host: Host, told: Told, monkeypatch: pytest.MonkeyPatch
) -> None:
    """When the program ends, tuning ends at its next step, and lets the key go for others."""
    line, begun = BackgroundQueue(), threading.Event()
    monkeypatch.setattr(background, "queue_of", lambda _: line)
    run = Session.run

    def seen(self: Session, *rest: Any) -> Any:
        begun.set()
        return run(self, *rest)

    monkeypatch.setattr(Session, "run", seen)
    later(host, told).resolve(miss())
    assert begun.wait(PATIENCE_S)
    thread = line._thread
    line.stop()
    if thread is not None:
        thread.join(PATIENCE_S)
    assert told.choices == []
    monkeypatch.setattr(Session, "run", run)
    assert host.resolver().resolve(miss()).how == "tuned"


ENDLESS = """
import threading
from asmtune.runtime.misses.background import queue_of
begun = threading.Event()
def work():
    begun.set()
    threading.Event().wait()
queue_of("NVIDIA H200").put(work)
begun.wait()
print("ends")
"""


@pytest.mark.slow
def test_the_program_ends_all_the_same() -> None:
    """Work that never ends keeps no program from ending, nor gives it another exit code."""
    done = subprocess.run(
        [sys.executable, "-c", ENDLESS], capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stdout) == (0, "ends\n"), done.stderr


DTYPES = (torch.float32, torch.float16, torch.int8, torch.int64, torch.bool)


@given(
    dtype=st.sampled_from(DTYPES),
    start=st.integers(0, 40),
    rows=st.integers(1, 5),
    cols=st.integers(1, 7),
    step=st.integers(1, 3),
)
def test_a_view_stays_the_same_view(
    dtype: torch.dtype, start: int, rows: int, cols: int, step: int
) -> None:
    """Contents, shape, strides and alignment of any view are those of the original."""
    base = torch.arange(200).to(dtype)
    view = torch.as_strided(base, (rows, cols), (cols * step, step), start)
    made = copy_arguments({"x": view, "n": 3})["x"]
    assert torch.equal(made, view)
    assert (made.shape, made.stride(), made.dtype) == (view.shape, view.stride(), view.dtype)
    assert made.data_ptr() % 512 == view.data_ptr() % 512
    assert made.data_ptr() != view.data_ptr()
    made.zero_()
    assert torch.equal(base, torch.arange(200).to(dtype))
