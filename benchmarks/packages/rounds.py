"""Steady times of two ways of a program, in rounds that alternate between their live processes.

Clocks, temperature and power of a GPU drift: processes measured one after the other were 4% apart
with equal configs. In a round both ways are measured within milliseconds, so that a round's ratio
is free of the drift. What stays is what a process keeps for its life, as where its memory lies.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from typing import Any, Final

from benchmarks.packages.catalogue import Program, Way
from benchmarks.packages.processes import Place, ProcessEndedError, Running, Session
from benchmarks.packages.programs.stopwatch import ROUNDS, medians

TIMES: Final = {"speed": "gpu_us", "speed_of_call": "call_us"}


def run_ways(program: Program, places: Mapping[Way, Place]) -> dict[str, dict[str, Any]]:
    """Run a program in each way, the plain one first and until the end; give results by way.

    First calls are alone on the machine: no other process does anything meanwhile. The plain
    process keeps its operations, so that each other way can be timed beside it.
    """
    results = {}
    first, *others = places
    plain = Running(program, first, places[first])
    for name in program.operations:
        plain.first_call(name)
        plain.save(name)
    for way in others:
        own = Running(program, way, places[way])
        for name in program.operations:
            own.first_call(name)
            if plain.has(name) and own.has(name):
                alternate(plain, own, name)
            elif own.has(name):
                own.rows[name]["later_error"] = "no rounds: the plain program's process has ended"
            own.save(name)
        results[way.name] = own.close()
    return {first.name: plain.close(), **results}


def alternate(plain: Running, own: Running, name: str) -> None:
    """Time an operation in both ways, in rounds.

    The second's row receives medians, and `rounds`: the plain program's medians beside them and,
    round by round, its time over the second's. The first's row receives its medians.
    """
    runs = (plain, own)
    rounds: tuple[list[dict[str, Any]], ...] = ([], [])
    run = own
    try:
        plans = []
        for run in runs:
            plans.append(_live(run).ask("plan", name=name))
        plan = {key: min(one[key] for one in plans) for key in ("calls", "queued")}
        for number in range(ROUNDS):
            # Each is first in every other round: who follows finds the GPU warmer.
            for turn in (0, 1) if number % 2 else (1, 0):
                run = runs[turn]
                rounds[turn].append(_live(run).ask("round", name=name, **plan))
    except ProcessEndedError as error:
        run.failed(name, str(error))
        return
    paired = {
        speed: [round(a[key] / b[key], 4) for a, b in zip(*rounds, strict=True)]
        for speed, key in TIMES.items()
        if key in rounds[0][0]
    }
    for run, own_rounds in zip(runs, rounds, strict=True):
        run.rows[name] |= {**medians(own_rounds), "calls_a_round": plan["calls"]}
    own.rows[name]["rounds"] = {"plain": medians(rounds[0]), **paired}


def _live(run: Running) -> Session:
    assert run.session is not None
    return run.session


def pairs(ratios: Sequence[float]) -> list[float]:
    """Take the geometric means of two rounds each, one for each order of the two ways.

    Who follows can be faster or slower than who is first: two casts of 50 us were 0.970 of the
    plain program's speed in one order and 1.000 in the other, so that the median of single rounds
    told which order an odd number of rounds has more of.
    """
    return [math.sqrt(a * b) for a, b in zip(ratios[::2], ratios[1::2], strict=False)]


def middle(ratios: Sequence[float]) -> float:
    """Take the median of the ratios of pairs of rounds."""
    return round(statistics.median(pairs(ratios)), 4)


def speeds(row: Mapping[str, Any]) -> dict[str, list[float]]:
    """Read an operation's ratios, round by round, of the GPU's time and of the whole call's."""
    rounds = row.get("rounds", {})
    return {speed: rounds[speed] for speed in TIMES if speed in rounds}
