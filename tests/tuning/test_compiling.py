"""Batches in the background: what the workers give, in order, and what is given up."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest

from asmtune.core.config import Config
from asmtune.core.progress import ProgressListener
from asmtune.core.records.verdicts import Verdict
from asmtune.tuning import background_compiler
from asmtune.tuning.background_compiler import BackgroundCompiler, StragglerTimer

CONFIGS = [Config({"B": i}) for i in range(8)]
SLOW = CONFIGS[3]


@dataclass
class Workers:
    """Stands for a front: all configs are quick but one, which ends only when it is stopped."""

    slow: Config | None = None
    error: Exception | None = None
    progress: ProgressListener = field(default_factory=ProgressListener)
    stopped: threading.Event = field(default_factory=threading.Event)
    done: threading.Event = field(default_factory=threading.Event)

    def verdicts(
        self,
        configs: Sequence[Config],
        moment: str,
        known: dict[Config, Verdict],
        on_verdict: Callable[[Verdict], None] = lambda _: None,
    ) -> list[Verdict]:
        """Tell each verdict when its config is compiled; return all."""
        if self.error is not None:
            raise self.error
        self.progress.start(moment, len(configs))
        made = []
        for config in self.compiled(configs):
            made.append(known.setdefault(config, Verdict(config, kept=True)))
            self.progress.advance()
            on_verdict(made[-1])
        return made

    def compiled(self, configs: Sequence[Config]) -> Iterator[Config]:
        """The quick ones, and the slow one if nobody stops it."""
        yield from (config for config in configs if config != self.slow)
        end = time.monotonic() + 30
        while self.slow in configs and not self.done.wait(0.01):
            if self.stopped.is_set() or time.monotonic() > end:
                return
        yield from (config for config in configs if config == self.slow)

    def stop(self) -> None:
        """End what is being compiled."""
        self.stopped.set()


def compiler_of(
    front: Workers, known: dict[Any, Any] | None = None, default: Config | None = None, **how: Any
) -> BackgroundCompiler:
    """A compiler over a front that tells it of stragglers."""
    front.progress = pulse = StragglerTimer(ProgressListener(), default)
    known = {} if known is None else known
    return BackgroundCompiler(front, known, pulse, **how)  # type: ignore[arg-type]


def collected(compiler: BackgroundCompiler) -> list[Verdict]:
    """The verdicts on `CONFIGS`, in the order in which they come."""
    came: list[Verdict] = []
    with compiler:
        compiler.start(CONFIGS)
        while verdicts := compiler.collect():
            came += verdicts
    return came


def test_verdicts_come_in_order() -> None:
    """A batch gives a verdict for each config, in its order; without a batch there is none."""
    with compiler_of(Workers()) as compiler:
        assert compiler.collect() == []
    assert [verdict.config for verdict in collected(compiler_of(Workers()))] == CONFIGS


def test_the_first_that_is_worth_timing_is_told_once() -> None:
    """Of all batches together one config is told, and not one that was dropped."""
    dropped = {CONFIGS[0]: Verdict(CONFIGS[0], kept=False)}
    told: list[Config] = []
    first = lambda verdict: told.append(verdict.config)  # noqa: E731
    with compiler_of(Workers(), dropped, first=first) as compiler:
        for batch in (CONFIGS[:4], CONFIGS[4:]):
            compiler.start(batch)
            compiler.collect()
    assert told == [CONFIGS[1]]


@pytest.mark.parametrize("one_by_one", [False, True])
def test_a_straggler_is_given_up(one_by_one: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """One config that hangs while the rest were quick fails by timeout; the others are kept."""
    monkeypatch.setattr(background_compiler, "LEAST_S", 0.3)
    start = time.monotonic()
    verdicts = collected(compiler_of(Workers(SLOW), one_by_one=one_by_one))
    assert time.monotonic() - start < 20
    assert {verdict.config for verdict in verdicts} == {*CONFIGS}
    (lost,) = [verdict for verdict in verdicts if not verdict.kept]
    assert lost.config == SLOW
    assert lost.failure.kind == "timeout"
    assert lost.failure.detail.startswith("given up after")


@pytest.mark.parametrize("one_by_one", [False, True])
def test_the_default_is_not_given_up(one_by_one: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """However long its compile takes, the default is waited for."""
    monkeypatch.setattr(background_compiler, "LEAST_S", 0.1)
    workers = Workers(SLOW)
    threading.Timer(0.5, workers.done.set).start()
    came = collected(compiler_of(workers, default=SLOW, one_by_one=one_by_one))
    assert {verdict.config for verdict in came if verdict.kept} == {*CONFIGS}


def test_leaving_ends_the_batch() -> None:
    """A batch that nobody collects is stopped, not waited for."""
    workers = Workers(CONFIGS[0])
    start = time.monotonic()
    with compiler_of(workers) as compiler:
        compiler.start(CONFIGS)
    assert workers.stopped.is_set()
    assert time.monotonic() - start < 20


def test_a_short_list_comes_one_by_one() -> None:
    """Verdicts are there before the last one; a batch that was begun early is not begun again."""
    workers = Workers(SLOW)
    with compiler_of(workers, one_by_one=True) as compiler:
        compiler.start(CONFIGS)
        compiler.start(CONFIGS)
        came: list[Verdict] = []
        while len(came) < len(CONFIGS) - 1:
            came += compiler.collect()
        assert not workers.stopped.is_set()
        workers.done.set()
        (last,) = compiler.collect()
        assert compiler.collect() == []
    assert {verdict.config for verdict in came} == {*CONFIGS} - {SLOW}
    assert last.config == SLOW
