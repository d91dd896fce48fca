"""`asmtune tune --sweep`: which shapes of a range are timed, and what is said of the others."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from command_lines import Commands

from asmtune.base.errors import InputError
from asmtune.base.settings import Settings
from asmtune.core.config import Config
from asmtune.core.kernel_module import load_kernel_module
from asmtune.core.problem import Problem
from asmtune.core.records.tuned import Measurement, TuneKey, TuneRecord
from asmtune.core.space.space import Space
from asmtune.store.database import Store
from asmtune.studies import sweep, tuning_queue
from asmtune.studies.sweep import budget_s, parse_sweep, shapes_of_ranges
from asmtune.tuning.options import TuneOptions
from asmtune.tuning.request import TuningRequest, TuningResult, provenance

SWEEP = ("tune", "{}/doubled.py", "--sweep", "n=64..65536", "--budget", "60s")


def us_at(n: int, config: Config) -> float:
    """Long vectors want long blocks."""
    steps = abs(config.kwargs["BLOCK"].bit_length() - min(512, max(128, n // 64)).bit_length())
    return n / 1024 + 5.0 * (1 + 0.3 * steps + 0.1 * abs(config.num_warps.bit_length() - 3))


@dataclass
class Clock:
    """Stands for the tuner: times every config of a request, and stores the record."""

    options: Any = None
    seconds: list[float] = field(default_factory=list)
    shapes: list[dict[str, Any]] = field(default_factory=list)
    fails: int = 0
    interrupted_after: int | None = None

    def request(
        self, problem: Problem, key: TuneKey, space: Space, reference: str | None = None
    ) -> TuningRequest:
        """As the real one."""
        return TuningRequest(problem, key, space, reference=reference)

    def results(self, requests: Sequence[TuningRequest]) -> Iterator[TuningResult]:
        """As the real one."""
        for request in requests:
            if len(self.shapes) == self.interrupted_after:
                raise KeyboardInterrupt
            self.seconds.append(self.options.effort.limits.seconds)
            self.shapes.append(dict(request.key.shape))
            if len(self.shapes) <= self.fails:
                yield TuningResult(request, "failed", error="no config can run")
                continue
            n = request.key.shape["n"]
            timed = tuple(
                Measurement(config, us, us, us, (us,))
                for config in request.configs()
                for us in (us_at(n, config),)
            )
            winner = min(timed, key=lambda one: one.median_us).config
            made = provenance(request.problem, request.space)
            record = TuneRecord(request.key, winner, timed, made)
            with Store.open(Settings.from_environment().store_where) as store:
                store.save(record)
            yield TuningResult(request, "tuned", record, None, 0.1, None, len(timed), len(timed))


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> Clock:
    """A GPU whose times are told, and an empty store."""
    made = Clock()
    monkeypatch.setenv("ASMTUNE_CACHE_DIR", str(tmp_path / "kept"))

    def opened(options: TuneOptions, *_: Any) -> tuning_queue.TuningGpu:
        made.options = options
        return tuning_queue.TuningGpu("NVIDIA H200", "cpu", made)  # type: ignore[arg-type]

    # The sweep narrows the options of the tuner by a copy of it.
    monkeypatch.setattr(tuning_queue, "open_machine", opened)
    return made


def test_the_ends_then_where_it_is_not_sure(clock: Clock, commands: Commands) -> None:
    """Ends and middle are tuned first; fewer shapes than the range has; the table tells all."""
    ran = commands.run(*SWEEP, "--json")
    told = json.loads(ran.out)
    shapes = [one["shape"]["n"] for one in told["tuned"]]
    assert shapes[:2] == [64, 65536]
    assert len(shapes) == len(set(shapes)) < told["shapes"]
    assert 0.9 < told["worst_expected_share"] <= told["expected_share"] <= 1
    assert told["sure"]
    assert told["pieces"][0]["from"] == {"n": 64}
    assert told["pieces"][-1]["to"] == {"n": 65536}
    blocks = [one["config"]["BLOCK"] for one in told["pieces"]]
    assert (blocks[0], blocks[-1]) == (128, 256)
    assert all(0 < seconds <= 60 for seconds in clock.seconds)


def test_it_goes_on_with_what_is_stored(clock: Clock, commands: Commands) -> None:
    """A second sweep times nothing again, and says how much it used."""
    commands.run(*SWEEP)
    first = len(clock.shapes)
    ran = commands.run(*SWEEP)
    assert len(clock.shapes) == first
    assert f"0 shapes tuned now, {first} stored before" in " ".join(ran.out.split())
    assert "configs over the range" in ran.out


def test_a_shape_that_fails_is_told_once(clock: Clock, commands: Commands) -> None:
    """A shape that cannot be tuned is not tried again, and the exit code is 1."""
    clock.fails = 1
    ran = commands.run(*SWEEP)
    assert ran.code == 1
    assert clock.shapes.count({"n": 64}) == 1
    assert "no config can run" in ran.out


def test_an_interrupt_shows_what_is_known(clock: Clock, commands: Commands) -> None:
    """After Ctrl-C the shapes that are tuned count, the last of them too."""
    clock.interrupted_after = 2
    ran = commands.run(*SWEEP)
    assert ran.code == 130
    assert "2 shapes tuned now, 0 stored before; nothing can be interpolated: 2 shapes" in " ".join(
        ran.out.split()
    )


@pytest.mark.slow(seconds=1)
def test_a_shape_that_the_module_refuses(clock: Clock, commands: Commands) -> None:
    """A size between the ends that `make` refuses is told, and the sweep goes on."""
    file = commands.folder / "doubled.py"
    text = file.read_text()
    refuses = '    if shape["n"] % 64:\n        raise ValueError("no multiple of 64")\n'
    head = "def problem(shape, dtype, device):\n"
    file.write_text(text.replace(head, head + refuses))
    ran = commands.run(*SWEEP)
    assert ran.code == 1
    assert "no multiple of 64" in ran.out
    assert len(clock.shapes) > 2
    assert all(shape["n"] % 64 == 0 for shape in clock.shapes)


def test_it_stops_at_the_budget(
    clock: Clock, commands: Commands, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is begun after the budget is spent, and what is not known is said."""
    ticks = iter([0.0, 0.0, 61.0])
    monkeypatch.setattr(sweep, "time", SimpleNamespace(monotonic=lambda: next(ticks)))
    ran = commands.run(*SWEEP)
    assert len(clock.shapes) == 1
    assert "1 shape tuned, and 3 are needed" in " ".join(ran.out.split())


def test_keys_pick_shows_what_a_shape_would_get(clock: Clock, commands: Commands) -> None:
    """The listing names stored and interpolated configs, offline, with their expected loss."""
    commands.run(*SWEEP)
    stored = clock.shapes[0]["n"]
    pick = ("keys", "pick", "{}/doubled.py", "--shape", f"n={stored}", "--shape", "n=777", "--json")
    told = json.loads(commands.run(*pick).out)
    assert [one["how"] for one in told] == ["known", "interpolated"]
    assert {one["device"] for one in told} == {"NVIDIA H200"}
    assert told[1]["expected_loss"] > 0
    ran = commands.run("keys", "pick", "{}/doubled.py", "--shape", "n=777")
    assert "interpolated" in ran.out


def test_keys_pick_without_records(clock: Clock, commands: Commands) -> None:
    """Without tuned shapes one line says how to get some."""
    line = commands.refused("keys", "pick", "{}/doubled.py", "--shape", "n=777")
    assert "no tuned key of kernel" in line
    assert clock.shapes == []


def test_products_of_ranges(commands: Commands) -> None:
    """Several ranges are multiplied, with both ends, and thinned where they are too many."""
    assert [one["n"] for one in shapes_of_ranges({"n": (1, 17)})] == [1, 2, 3, 4, 6, 8, 12, 16, 17]
    both = shapes_of_ranges({"m": (1, 1 << 40), "n": (5, 5), "k": (1, 1 << 40)})
    assert 1000 < len(both) <= 4096
    assert both[0] == {"m": 1, "n": 5, "k": 1}
    assert both[-1] == {"m": 1 << 40, "n": 5, "k": 1 << 40}


def test_no_gpu(commands: Commands, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a GPU one line says so."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert "tune needs a CUDA GPU; there is none on this machine" in commands.refused(*SWEEP)


@pytest.mark.parametrize(
    ("ranges", "says"),
    [
        ("n=8..4", "n=8..4 is reversed; write n=4..8"),
        ("n=0..8", "n=0..8 goes beyond 1 to 2**63 - 1"),
        ("n=1..99999999999999999999", "goes beyond"),
        ("n=a..8", "n=a..8 is neither a whole number nor a range"),
        ("n=1.5..8", "is neither a whole number"),
        ("n=-1..8", "is neither a whole number"),
        ("n=1..", "is neither a whole number"),
        ("n=", "'n=' is no size"),
        ("", "'' is no size"),
        ("n=8", "has no range"),
        ("n=1..8,n=2..4", "n"),
        ("m=1..8", "the shape lacks n"),
        ("n=1..8,m=4", "has no dimension 'm'"),
    ],
)
def test_ranges_that_are_refused(ranges: str, says: str, clock: Clock, commands: Commands) -> None:
    """Each mistake of a range is told in one line, before anything is timed."""
    line = commands.refused("tune", "{}/doubled.py", "--sweep", ranges, "--budget", "5s")
    assert says in line
    assert clock.shapes == []


@pytest.mark.parametrize("budget", ["60", "-5s", "0s", "s", "1 day", "infs", "nans", ""])
def test_budgets_that_are_refused(budget: str) -> None:
    """A budget has a unit and is above 0."""
    with pytest.raises(InputError, match="is no duration above 0 with a unit"):
        budget_s(budget)


def test_budgets() -> None:
    """Seconds, minutes and hours."""
    assert [budget_s(text) for text in ("60s", "1.5m", "2min", "1h")] == [60, 90, 120, 3600]


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (("--sweep", "n=1..8"), "--sweep: say how long it may take"),
        (("--budget", "5s"), "--budget: it is for --sweep"),
        (("--sweep", "n=1..8", "--budget", "5s", "--shape", "n=4"), "--shape and --sweep"),
        (("--sweep", "n=1..8", "--budget", "5s", "--force"), "--force and --sweep"),
    ],
)
def test_options_that_do_not_go_together(
    options: tuple[str, ...], says: str, clock: Clock, commands: Commands
) -> None:
    """A sweep chooses its own shapes, and needs a budget."""
    assert says in commands.refused("tune", "{}/doubled.py", *options)
    assert clock.shapes == []


def test_names_are_the_kernels(commands: Commands) -> None:
    """A range is read to the ends of each size."""
    module = load_kernel_module(str(commands.folder / "doubled.py"))
    assert parse_sweep("n=1..8", module) == {"n": (1, 8)}
