"""Batches in the background: what the workers give, in order, and what is given up."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from typing import Any

import pytest

from asmtune.base.errors import StoreError
from asmtune.core.config import Config
from asmtune.core.records.verdicts import Verdict
from asmtune.predict.prune.front import ProgressListener
from asmtune.tuning import background_compiler
from asmtune.tuning.background_compiler import BackgroundCompiler, StragglerTimer

CONFIGS = [Config({"B": i}) for i in range(8)]


class Workers:
    """Stands for a front: all configs are quick but one, which ends only when it is stopped."""

    def __init__(self, pulse: StragglerTimer, slow: Config | None = None) -> None:
        self.pulse, self.slow = pulse, slow
        self.stopped = threading.Event()
        self.error: Exception | None = None

    def verdicts(self, configs: Sequence[Config], moment: str, _: Any) -> list[Verdict]:
        """Verdicts of the quick ones, and of the slow one if nobody stops it."""
        if self.error is not None:
            raise self.error
        self.pulse.start(moment, len(configs))
        for config in configs:
            if config != self.slow:
                self.pulse.advance()
        if self.slow in configs and self.stopped.wait(30):
            return [Verdict(config, kept=True) for config in configs if config != self.slow]
        return [Verdict(config, kept=True) for config in configs]

    def stop(self) -> None:
        """Ends what is being compiled."""
        self.stopped.set()


def test_verdicts_come_in_order() -> None:
    """A batch gives a verdict for each config, in its order; without a batch there is none."""
    pulse = StragglerTimer(ProgressListener())
    with BackgroundCompiler(Workers(pulse), {}, pulse) as compiler:  # type: ignore[arg-type]
        assert compiler.collect() == []
        compiler.start(CONFIGS)
        assert [verdict.config for verdict in compiler.collect()] == CONFIGS
        assert compiler.collect() == []


def test_a_straggler_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """One config that hangs while the rest were quick fails by timeout; the others are kept."""
    monkeypatch.setattr(background_compiler, "LEAST_S", 0.3)
    pulse = StragglerTimer(ProgressListener())
    start = time.monotonic()
    with BackgroundCompiler(Workers(pulse, CONFIGS[3]), {}, pulse) as compiler:  # type: ignore[arg-type]
        compiler.start(CONFIGS)
        verdicts = compiler.collect()
    assert time.monotonic() - start < 20
    assert [verdict.config for verdict in verdicts] == CONFIGS
    (lost,) = [verdict for verdict in verdicts if not verdict.kept]
    assert lost.config == CONFIGS[3]
    assert lost.failure is not None
    assert lost.failure.kind == "timeout"


def test_a_batch_of_equals_is_waited_for() -> None:
    """While less than three quarters of a batch are done, nothing in it is late."""
    pulse = StragglerTimer(ProgressListener())
    pulse.start("compile", 8)
    for _ in range(5):
        pulse.advance()
    time.sleep(0.05)
    assert pulse.overdue_s() == 0


def test_errors_reach_the_collector() -> None:
    """What the background raises is raised where its batch is collected."""
    pulse = StragglerTimer(ProgressListener())
    workers = Workers(pulse)
    workers.error = StoreError("no folder")
    with BackgroundCompiler(workers, {}, pulse) as compiler:  # type: ignore[arg-type]
        compiler.start(CONFIGS)
        with pytest.raises(StoreError, match="no folder"):
            compiler.collect()


def test_leaving_ends_the_batch() -> None:
    """A batch that nobody collects is stopped, not waited for."""
    pulse = StragglerTimer(ProgressListener())
    workers = Workers(pulse, CONFIGS[0])
    start = time.monotonic()
    with BackgroundCompiler(workers, {}, pulse) as compiler:  # type: ignore[arg-type]
        compiler.start(CONFIGS)
    assert workers.stopped.is_set()
    assert time.monotonic() - start < 20
