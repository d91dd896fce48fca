"""Misses on a machine without a GPU: configs compile for an H200, launches and times are told."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from asmtune.core.config import Config
from asmtune.core.problem import Problem
from asmtune.core.space.space import Space
from asmtune.runtime.misses.lookups import Choice
from asmtune.runtime.misses.resolver import Resolver
from asmtune.runtime.options import DecoratorOptions
from asmtune.tuning.options import TuneOptions
from asmtune.tuning.request import TuningRequest, key_of
from asmtune.tuning.tuner import Tuner
from tests import tuning_support as support


@dataclass
class Host:
    """A machine, its store, and the workshops that were opened on it.

    Attributes:
        folder: of the store and of all else that is kept.
        machine: takes the times that it is told.
        prepared: what every workshop is made of.
        opened: options of each workshop, in order.
    """

    folder: Path
    machine: support.HostMachine
    prepared: Tuner
    opened: list[TuneOptions] = field(default_factory=list)

    def resolver(self, **options: Any) -> Resolver:
        """A resolver as a new process would have it; problems are small only where told."""
        return Resolver(self.options(**options))

    def options(self, **options: Any) -> DecoratorOptions:
        """Options of a decorator over the usual space."""
        return DecoratorOptions(
            **{"space": support.space(), "skip_tuning_below_us": None, **options}
        )


PATIENCE_S = 120.0


class Told:
    """Records of what a resolver emits of keys that were tuned in the background."""

    def __init__(self) -> None:
        self.choices: list[tuple[TuningRequest, Choice]] = []
        self._some = threading.Semaphore(0)

    def __call__(self, at: TuningRequest, choice: Choice) -> None:
        """Take note."""
        self.choices.append((at, choice))
        self._some.release()

    def next(self) -> Choice:
        """The next choice."""
        assert self._some.acquire(timeout=PATIENCE_S)
        return self.choices[-1][1]


def later(host: Host, told: Told, **options: Any) -> Resolver:
    """A resolver that tunes in the background."""
    return Resolver(host.options(on_miss="background", **options), told)


def make_host(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Host:
    """A host whose user has an empty cache folder."""
    machine = support.HostMachine()
    # Before the folder is the user's: the artifacts are those of the test session.
    made = Host(folder, machine, support.workshop(folder, machine))
    monkeypatch.setenv("ASMTUNE_CACHE_DIR", str(folder))

    def opened(_: str, options: TuneOptions) -> Tuner:
        made.opened.append(options)
        effort = replace(options.effort, scorer="roofline")
        return replace(made.prepared, options=replace(options, effort=effort))

    monkeypatch.setattr(Tuner, "open", opened)
    return made


def miss(
    n: int = 4096, space: Space | None = None, problem: Problem | None = None
) -> TuningRequest:
    """A launch that adds two vectors."""
    made = problem or support.problem(n)
    return TuningRequest(made, key_of(made, support.DEVICE), space or support.space())


def described(choice: Choice) -> tuple[str, bool, Config]:
    """Say how a config was chosen, if that is final, and which config it is."""
    return choice.how, choice.final, choice.config
