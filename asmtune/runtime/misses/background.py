"""Tuning while the program continues: in a thread, on copies of a launch's arguments.

There is one daemon thread for a device; it tunes one key after another. A child process times,
so that program and tuning do not wait for each other's Python. They share the GPU, so that
timings have more noise than those of a tuning in the foreground.

When the program ends, tuning ends at its next step. It is waited for, but not for long: a
daemon that Python ends inside C++, where Triton's front end is half of the time, aborts the
process.
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import importlib
import os
import threading
import time
import warnings
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from contextlib import ExitStack, suppress
from dataclasses import replace
from functools import cache
from typing import TYPE_CHECKING, Any, Final

from asmtune.base.errors import InputError, MemoryShortError
from asmtune.base.text import amount
from asmtune.measure.bench.argument_codec import (
    Packing,
    StorageRange,
    placed,
    restore,
)
from asmtune.measure.checks.effects import tensor_parts
from asmtune.measure.memory import PROCESS_BYTES, RESERVE_BYTES, free_bytes
from asmtune.triton_api.user_state import outside
from asmtune.tuning.listener import TuningListener

if TYPE_CHECKING:
    from asmtune.tuning.request import TuningRequest


def copy_arguments(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Copy the tensors of arguments; views of one storage stay views of one copy.

    Pointers keep their alignment. An argument that holds no known tensor stays as it is.

    Raises:
        torch.OutOfMemoryError: the device has no room.
        MemoryShortError: it would have too little for the program, which goes on meanwhile.
    """
    packing = Packing()
    encodings: dict[str, Any] = {}
    for name, value in arguments.items():
        if tensor_parts({name: value}):
            # The process that times refuses what cannot be described, with the same message.
            with suppress(InputError):
                encodings[name] = packing.describe(value, f"argument {name}")
    _require_room(packing.regions.values())
    memory = [
        placed(region.content, region.first, region.whole.device, pinned=region.pinned)
        for region in packing.regions.values()
    ]
    return {**arguments, **{name: restore(form, memory) for name, form in encodings.items()}}


_SHARE: Final = 4
"""Two copies of arguments take at most a fourth of a GPU's free memory."""


def _require_room(regions: Iterable[StorageRange]) -> None:
    """Check that a GPU has room for two copies, one here and one where they are timed."""
    lengths: dict[Any, int] = {}
    for region in regions:
        if region.device == "cuda":
            device = region.whole.device
            lengths[device] = lengths.get(device, 0) + 2 * region.nbytes
    for device, length in lengths.items():
        free = free_bytes(device)
        if max(length + PROCESS_BYTES + RESERVE_BYTES, _SHARE * length) > free:
            raise MemoryShortError(
                f"two copies of them take {amount(length, 'B')}, and {amount(free, 'B')} are free"
            )


_RELAXED: Final = 2  # CU_STREAM_CAPTURE_MODE_RELAXED
MOST_WAITING: Final = 3
"""Keys that wait for the background, each with a copy of its arguments; others ask again later."""

_HEAD_START_S: Final = 0.1
"""Seconds that the launch gets before the thread begins, which loads all that tunes.

Each operation of PyTorch's gives Python's lock away, and would wait 5 ms to have it back.
"""

_LEAVE_S: Final = 2.0
"""Seconds that the exiting program waits for a step of tuning to end: a trial takes 1 or 2."""


class BackgroundWarning(UserWarning):
    """A key could not be tuned in the background; its launches keep their config."""


class StoppedError(BaseException):
    """The program exits and background tuning stops; not an `Exception`."""


class ShutdownSignal(TuningListener):
    """Listener that ends what runs in the background when the program ends."""

    def __init__(self) -> None:
        self._pending = threading.Event()

    def stop(self) -> None:
        """Make the next step raise `StoppedError`."""
        self._pending.set()

    def check(self, *_: Any, **__: Any) -> None:
        """Raise at a step if the program exits.

        Raises:
            StoppedError: the program ends.
        """
        if self._pending.is_set():
            raise StoppedError

    start = advance = waiting = begin = stage = progress = end = check


class BackgroundQueue:
    """Work for one device, done in order by a daemon thread.

    The thread ends when nothing is left. If an unexpected error ends it, later work starts a
    new one.
    """

    def __init__(self) -> None:
        self.shutdown = ShutdownSignal()
        self._pending: deque[Callable[[], None]] = deque()
        self._turned_away: list[Callable[[], None]] = []
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None

    @property
    def is_full(self) -> bool:
        """Return whether no further key may wait with copies of its arguments."""
        return len(self._pending) >= MOST_WAITING

    def ask_later(self, ask: Callable[[], None]) -> None:
        """Call a function when a piece of work is done: there was no room for another."""
        with self._lock:
            self._turned_away.append(ask)

    def put(self, work: Callable[[], None]) -> None:
        """Add work; it runs when all work before it is done.

        Raises:
            RuntimeError: no thread can be started.
        """
        with self._lock:
            self._pending.append(work)
            if self._thread is not None:
                return
            thread = threading.Thread(target=self._run, name="asmtune-background", daemon=True)
            try:
                thread.start()
            except RuntimeError:
                self._pending.pop()
                raise
            self._thread = thread

    def stop(self) -> None:
        """Stop the current work at its next step, drop the rest, and wait a little."""
        self.shutdown.stop()
        with self._lock:
            self._pending.clear()
            thread = self._thread
        if thread is not None:
            thread.join(_LEAVE_S)

    def _run(self) -> None:
        _allow_captures()
        time.sleep(_HEAD_START_S)
        with ExitStack() as unforeseen:
            unforeseen.callback(self._lose_thread)
            with suppress(StoppedError):
                while (work := self._next()) is not None:
                    work()
                    self._admit()
            unforeseen.pop_all()

    def _admit(self) -> None:
        """Let all that were turned away ask again."""
        with self._lock:
            turned_away, self._turned_away = self._turned_away, []
        for ask in turned_away:
            ask()

    def _lose_thread(self) -> None:
        with self._lock:
            self._thread = None

    def _next(self) -> Callable[[], None] | None:
        with self._lock:
            if self._pending:
                return self._pending.popleft()
            self._thread = None
            return None


def queue_of(device: str) -> BackgroundQueue:
    """Return the queue of a device, by its name; a forked process has its own."""
    return _queue_of_process(device, os.getpid())


@cache
def _queue_of_process(device: str, pid: int) -> BackgroundQueue:  # noqa: ARG001 - a fork has no threads
    queue = BackgroundQueue()
    # What Python does not document, and its pools of threads use: they wait at the end of the
    # program for what they run, before `atexit` has its turn. The last that is registered comes
    # first, so that theirs must be by now.
    importlib.import_module("concurrent.futures.thread")
    at_end = getattr(threading, "_register_atexit", atexit.register)
    at_end(queue.stop)
    return queue


def tune_later(request: TuningRequest, work: Callable[[TuningRequest], None]) -> bool:
    """Queue a request for the background, with copies of its tensors as they are now.

    The copies are made on the current stream, before whatever is launched next. `work` is called
    with the request that has them, in the device's thread.

    Returns:
        False where there is no memory for the copies, with a warning, and while the program exits.
    """
    import torch

    if not threading.main_thread().is_alive():  # Python has ended its threads, and starts none
        return False
    try:
        arguments = copy_arguments(request.problem.arguments)
    except (torch.OutOfMemoryError, MemoryShortError) as error:
        first = str(error).splitlines()[0]
        warnings.warn(
            f"kernel {request.key.kernel}: not tuned in the background, its arguments cannot be "
            f"copied: {first}; free memory of the GPU, or tune it before with `asmtune tune`",
            BackgroundWarning,
            stacklevel=2,
        )
        return False
    copied_request = request.with_arguments_of(replace(request.problem, arguments=arguments))
    wait_for_stream = _stream_waiter()

    def begin() -> None:
        with outside():
            wait_for_stream()
            work(copied_request)

    queue_of(request.key.device).put(begin)
    return True


def _stream_waiter() -> Callable[[], None]:
    """Return a function that waits, in another thread, for the current stream's work so far."""
    import torch

    if not torch.cuda.is_available():
        return lambda: None
    device = torch.cuda.current_device()
    event: Any = torch.cuda.Event()  # type: ignore[no-untyped-call]
    event.record()

    def wait_for_stream() -> None:
        torch.cuda.set_device(device)
        event.synchronize()

    return wait_for_stream


def _allow_captures() -> None:
    """Let other threads capture CUDA graphs while this one calls CUDA.

    By default a capture forbids the whole process calls such as a copy to the host, and one
    that is made all the same ends the capture.
    """
    import torch

    if not torch.cuda.is_available():
        return
    mode = ctypes.c_int(_RELAXED)
    if torch.version.hip is None:
        ctypes.CDLL("libcuda.so.1").cuThreadExchangeStreamCaptureMode(ctypes.byref(mode))
        return
    # PyTorch has loaded AMD's runtime; without it a capture of another thread may end.
    with contextlib.suppress(OSError, AttributeError):
        runtime = ctypes.CDLL("libamdhip64.so")
        runtime.hipThreadExchangeStreamCaptureMode(ctypes.byref(mode))
