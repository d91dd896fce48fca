"""The garbage collector's pause: nested, over threads, and as the user had it afterwards."""

from __future__ import annotations

import gc
import os

import pytest

from asmtune.base.deadline import paused_collection
from tests.held_context import HeldContext


@pytest.mark.parametrize("enabled", [True, False])
def test_the_collector_is_left_as_it_was(enabled: bool) -> None:
    """It is off within, also in a nested context and after an error, and then as it was."""
    before = gc.isenabled()
    (gc.enable if enabled else gc.disable)()
    try:
        with paused_collection():
            with pytest.raises(RuntimeError), paused_collection():
                raise RuntimeError
            assert not gc.isenabled()
        assert gc.isenabled() == enabled
    finally:
        (gc.enable if before else gc.disable)()


def test_the_last_thread_that_leaves_ends_the_pause() -> None:
    """Whoever leaves last turns it on again, whoever came first."""
    with paused_collection():
        held = HeldContext(paused_collection)
    assert not gc.isenabled()
    held.leave()
    assert gc.isenabled()


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_forked_process_collects() -> None:
    """A process that is forked while another thread pauses has the collector, and may pause it."""
    held = HeldContext(paused_collection)
    pid = os.fork()
    if not pid:
        is_on = gc.isenabled()
        with paused_collection():
            is_on &= not gc.isenabled()
        os._exit(0 if is_on and gc.isenabled() else 1)
    held.leave()
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
