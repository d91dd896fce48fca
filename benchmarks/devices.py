"""Worth of one device's records on another, by replay: an H100 and an H200.

    python -m benchmarks.devices [--oracle FILE] [--output FILE]

Needs no GPU and no compile. The tasks are those that both devices have timed on the same configs.
Their machine code is the same, so that the training rows of the H200 (`score/data`, and `sketches`
before compiling) serve both: what depends on the device (DRAM, L2, the roofline's time) is worked
out for the H100. A task has at most 220 rows: the H200's fastest third, and a choice of the rest.
Shares are of the best speed among all configs that both devices have timed; of halved limits among
the rows that fit.

A device's record is that of a search over its recorded timings (effort balanced, ranked by
`roofline`, where a user's search has `learned`). Timings have the noise of
`replay_strategies`, and finals are exact. On the other device:

- `stored`: its config is used as it is, with no timing;
- `retarget`: the config that `asmtune retarget` names, with no timing;
- `search, 8 timings`: a search that begins with the record's configs as seeds;
- `retarget, 8 timings`: the first 8 configs of retarget's ranking;
- `search without record, 8 timings`, and another shape's config of the same device, to compare.

Searches time a task's first config (the default) and the seeds, then what the model picks.

Halved limits: the recorded configs whose registers and shared memory fit are the space, with the
timings of the real device, since no device of these limits was recorded: occupancy and with it
times would differ there. Of 30% of the bandwidth nothing can be replayed; what retarget says is
counted. The 8 tasks of the kernels of `--oracle` need its file, which is not in the repository.
"""

from __future__ import annotations

import argparse
import math
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from asmtune.core.config import Config
from asmtune.core.hardware.model import Target
from asmtune.core.hardware.shipped import load_target
from asmtune.core.oracle import Row, Task, load_oracle
from asmtune.core.records.tuned import Measurement, Provenance, TuneKey, TuneRecord
from asmtune.core.records.verdicts import Verdict
from asmtune.predict.score.examples import Examples, TaskRows
from asmtune.predict.score.learned import DATA
from asmtune.predict.score.roofline import LAUNCH_US, OVERLAP_SHARE, dram_rate
from asmtune.predict.score.vectors import BASE, LEAST_US
from asmtune.runtime.misses.lookups import distance
from asmtune.studies.replay.results import geometric_mean
from asmtune.studies.replay.strategies import RecordedCompiler, RecordedTimer
from asmtune.studies.retarget import MOST_TIMED, best_of, expected_us
from asmtune.tuning.initial_state import experience
from asmtune.tuning.options import EFFORTS
from asmtune.tuning.search.base import BatchSizes, Limits
from asmtune.tuning.search.loop import run
from asmtune.tuning.search.model import Model, MomentReading
from asmtune.tuning.search.state import PriorTimings, State
from benchmarks.provenance import RESULTS, write

TIMINGS: Final = 8
SEEDS: Final = 3
"""Draws of the timings' noise; shares are means over them."""

HALVED: Final = {
    "half the shared memory": ("shared_bytes_per_sm", "shared_bytes_per_block"),
    "half the registers": ("registers_per_sm",),
}
SLOW_SHARE: Final = 0.3
"""Share of the bandwidth that the slow device has."""

DEVICES: Final = {"H100": "NVIDIA H100 80GB HBM3", "H200": "NVIDIA H200"}
PAIRS: Final = (("H100", "H200"), ("H200", "H100"))
FILES: Final = {name: RESULTS / f"h200_{name}.json.gz" for name in ("families", "families2")}

Column = NDArray[np.float64]
Shares = dict[str, list[float]]

_COLUMN: Final = {name: place for place, name in enumerate(BASE)}
_MADE: Final = Provenance("", "", "", "", "", "", "")


def moved(base: NDArray[np.float32], old: Target, new: Target) -> NDArray[np.float32]:
    """Return a device's columns as another of the same architecture and SMs would have them.

    What runs inside the SMs is the roofline's time without DRAM; it is no less than L2's.
    """

    def us(name: str) -> Column:
        return np.exp(base[:, _COLUMN[name]].astype(np.float64)) - LEAST_US

    body, dram, l2 = us("us_roofline") - LAUNCH_US, us("us_dram"), us("us_l2")
    longer = body - OVERLAP_SHARE * dram
    inside = np.where(longer >= dram, longer, np.maximum((body - dram) / OVERLAP_SHARE, 0.0))
    dram = dram * dram_rate(old) / dram_rate(new)
    l2 = l2 * old.l2_bytes_per_s / new.l2_bytes_per_s
    inside = np.maximum(inside, l2)
    whole = np.maximum(inside, dram) + OVERLAP_SHARE * np.minimum(inside, dram) + LAUNCH_US
    result = base.copy()
    for name, column in (("us_roofline", whole), ("us_dram", dram), ("us_l2", l2)):
        result[:, _COLUMN[name]] = np.log(np.maximum(column, 0.0) + LEAST_US)
    return result


@dataclass(frozen=True)
class DeviceTask:
    """A task that both devices have timed; columns and times are in the order of `configs`.

    Attributes:
        kernel, shape, dtype: the task.
        configs: those that have rows and were timed on both.
        us: times by device.
        best_us: the least time of all configs that both have timed, by device.
        columns: of the assembly and of sketches, as the H200 has them.
        registers, shared: of a program, as compiled.
    """

    kernel: str
    shape: Mapping[str, Any]
    dtype: str
    configs: tuple[Config, ...]
    us: Mapping[str, Column]
    best_us: Mapping[str, float]
    columns: Mapping[str, NDArray[np.float32]]
    registers: NDArray[np.int64]
    shared: NDArray[np.int64]

    def predicted(self, target: Target) -> Column:
        """Return the roofline's microseconds on a device."""
        base = moved(self.columns["assembly"], load_target("H200"), target)
        return np.exp(base[:, 0].astype(np.float64)) - LEAST_US

    def fitting(self, target: Target) -> NDArray[np.bool_]:
        """Return which configs fit a device."""
        fits = self.shared <= target.shared_bytes_per_block
        return np.asarray(fits & (self.registers <= target.registers_per_sm))

    def read(self, target: Target) -> Any:
        """Return the reader of a search's verdicts: columns of their moment, on a device."""
        h200 = load_target("H200")
        columns = {name: moved(base, h200, target) for name, base in self.columns.items()}
        rows = {config: row for row, config in enumerate(self.configs)}

        def read(verdicts: Sequence[Verdict]) -> MomentReading:
            places = [rows[verdict.config] for verdict in verdicts]
            base = columns[verdicts[0].artifact or "sketch"] if verdicts else columns["sketch"]
            chosen = base[places].astype(np.float64)
            return MomentReading(chosen[:, 0], chosen)

        return read


def device_tasks(oracles: Mapping[str, Path]) -> list[DeviceTask]:
    """Match the recordings of both devices and the rows of the H200."""
    known = {
        (task.kernel, shape_text(task.shape)): (name, task)
        for name, path in oracles.items()
        for task in load_oracle(path).tasks
    }
    rows = {
        (name, moment, task.kernel, shape_text(task.shape), task.dtype): task
        for name in oracles
        for moment, folder in (("assembly", DATA), ("sketch", RESULTS / "sketches"))
        for task in Examples.load(folder / f"{name}.npz").tasks
    }
    tasks = []
    for task in load_oracle(RESULTS / "h100_families.json.gz").tasks:
        key = (task.kernel, shape_text(task.shape))
        if key in known:
            name, other = known[key]
            own = {m: rows.get((name, m, *key, other.dtype)) for m in ("assembly", "sketch")}
            both = {moment: part for moment, part in own.items() if part is not None}
            if len(both) == len(own) and (matched := matched_task(task, other, both)) is not None:
                tasks.append(matched)
    return tasks


def shape_text(shape: Mapping[str, Any]) -> str:
    """Return a shape as text, whatever the order of its sizes."""
    return str(sorted((name, str(value)) for name, value in shape.items()))


def matched_task(h100: Task, h200: Task, rows: Mapping[str, TaskRows]) -> DeviceTask | None:
    """Find the config of each training row; None if the rows are not of this recording."""
    timed = [row for row in h200.rows if row.ms is not None]
    slowdown = np.log([_ms(row) for row in timed])
    slowdown = (slowdown - slowdown.min()).astype(np.float32)
    first = next(iter(rows.values()))
    numbers = np.arange(len(timed), dtype=np.float32)[:, None]
    chosen = replace(first, base=numbers, slowdown=slowdown).thinned()
    if any(
        len(part.slowdown) != len(chosen.slowdown)
        or not np.allclose(part.slowdown, chosen.slowdown, atol=4e-3)
        for part in rows.values()
    ):
        return None
    picked = [timed[int(number)] for number in chosen.base[:, 0]]
    on_h100 = {str(row.config): _ms(row) for row in h100.rows if row.ms is not None}
    keep = [place for place, row in enumerate(picked) if str(row.config) in on_h100]
    configs = tuple(picked[place].config for place in keep)
    common = [row for row in timed if str(row.config) in on_h100]
    resources = [picked[place].resources for place in keep]
    return DeviceTask(
        h200.kernel,
        h200.shape,
        h200.dtype,
        configs,
        {
            "H100": 1e3 * np.array([on_h100[str(config)] for config in configs]),
            "H200": 1e3 * np.array([_ms(picked[place]) for place in keep]),
        },
        {
            "H100": 1e3 * min(on_h100[str(row.config)] for row in common),
            "H200": 1e3 * min(_ms(row) for row in common),
        },
        {moment: part.base[keep] for moment, part in rows.items()},
        np.array(
            [
                math.ceil(own.get("regs", 0) / 8) * 8 * 32 * config.num_warps
                for own, config in zip(resources, configs, strict=True)
            ]
        ),
        np.array([own.get("shared", 0) for own in resources]),
    )


def _ms(row: Row) -> float:
    assert row.ms is not None
    return row.ms


@dataclass(frozen=True)
class Replayed:
    """Timings of a search over a task by row, with noise but for its finalists."""

    us: Mapping[int, float]
    finalists: frozenset[int]

    @property
    def best(self) -> int:
        """Return the finalist of the least time."""
        return min(self.finalists, key=lambda row: self.us[row])


def search(
    task: DeviceTask,
    target: Target,
    rows: Sequence[int],
    seed: int,
    *,
    limits: Limits,
    seeds: Sequence[Config] = (),
) -> Replayed:
    """Search some rows of a task on a device by the loop that tunes."""
    device, place = target.name, {config: row for row, config in enumerate(task.configs)}
    configs = [task.configs[row] for row in rows]
    state = State(
        [Verdict(config, True, artifact="sketch") for config in configs],
        configs[0],
        PriorTimings(seeds=tuple(seeds)),
    )
    compiler = RecordedCompiler({c: Verdict(c, True, artifact="assembly") for c in configs})
    recorded = {c: Row(c, float(task.us[device][place[c]]) / 1e3, None, {}) for c in configs}
    pace: BatchSizes = EFFORTS["balanced"].pace
    strategy = Model(None, pace, seed, task.read(target))
    run(strategy, state, compiler, RecordedTimer(recorded, seed), limits)
    # Finals are taken to be exact, as `replay_strategies` does.
    finals = {place[v.config] for v in state.finalists(limits.finalists)}
    timed = {place[config]: us for config, us in state.timings.items()}
    exact = {row: float(task.us[device][row]) for row in finals}
    return Replayed({**timed, **exact}, frozenset(finals))


def record_of(task: DeviceTask, target: Target, seed: int) -> Replayed:
    """Return what a search on a device stores."""
    return search(task, target, range(len(task.configs)), seed, limits=EFFORTS["balanced"].limits)


def seeds_of(task: DeviceTask, record: Replayed, recorded_on: str, device: str) -> list[Config]:
    """Return the seeds that a search on the other device takes from a record."""
    key = TuneKey(task.kernel, dict(task.shape), {}, DEVICES[recorded_on])
    timed = {task.configs[row]: us for row, us in record.us.items()}
    measured = tuple(Measurement(config, us, us, us, ()) for config, us in timed.items())
    stored = TuneRecord(key, task.configs[record.best], measured, _MADE)
    asked = replace(key, device=DEVICES[device])
    return list(experience({"store": [stored]}, asked, load_target(device)).seeds)


def moves(
    task: DeviceTask, old: Target, new: Target, record: Replayed, seed: int
) -> tuple[dict[str, float], str]:
    """Return shares kept on a device by each use of a record, and what retarget says of it.

    The device's limits may be halved: times are those of the real one, among what fits.
    """
    real = load_target(new.name)
    fits = task.fitting(new)
    rows = np.flatnonzero(fits).tolist()
    us = task.us[real.name]
    whole = task.best_us[real.name] if fits.all() else float(us[rows].min())
    here, there = task.predicted(new), task.predicted(old)
    timed = dict(sorted(record.us.items(), key=lambda item: item[1])[:MOST_TIMED])
    expected = expected_us({row: float(here[row]) for row in rows}, dict(enumerate(there)), timed)
    ranking = sorted(expected, key=lambda row: expected[row])[:TIMINGS]
    best = best_of(expected, record.best, timed)
    fate = "fits" if best == record.best else "no longer pays"
    seeds = seeds_of(task, record, old.name, real.name)
    limits = Limits(timings=TIMINGS)
    seeded = search(task, real, rows, seed, limits=limits, seeds=seeds)
    unseeded = search(task, real, rows, seed, limits=limits)
    shares = {
        "retarget": whole / us[best],
        f"search, {TIMINGS} timings": whole / us[seeded.best],
        f"retarget, {TIMINGS} timings": whole / float(us[ranking].min()),
        f"search without record, {TIMINGS} timings": whole / us[unseeded.best],
    }
    if fits[record.best]:
        shares["stored"] = whole / us[record.best]
    else:
        fate = "no longer fits"
    return {name: float(share) for name, share in shares.items()}, fate


def replay(
    tasks: Sequence[DeviceTask], old: Target, new: Target, records: Mapping[int, Sequence[Replayed]]
) -> dict[str, Any]:
    """Replay every task from one device to another; shares are means over the seeds."""
    shares: Shares = {}
    fates: list[str] = []
    for number, task in enumerate(tasks):
        if not task.fitting(new).any():
            fates.append("nothing fits")
            continue
        drawn = [moves(task, old, new, record, s) for s, record in enumerate(records[number])]
        fates.append(drawn[0][1])
        for name in drawn[0][0]:
            of_seeds = [own[name] for own, _ in drawn if name in own]
            shares.setdefault(name, []).append(geometric_mean(of_seeds))
    told = {fate: fates.count(fate) for fate in dict.fromkeys(fates)}
    return {"tasks": len(tasks), "stored config": told, "kept": _summary(shares)}


def _summary(shares: Mapping[str, Sequence[float]]) -> dict[str, Any]:
    return {
        name: {
            "tasks": len(own),
            "mean": round(geometric_mean(own), 4),
            "worst": round(min(own), 4),
            "below_0.95": sum(share < 0.95 for share in own),
        }
        for name, own in sorted(shares.items())
    }


def limited(target: Target, fields: Iterable[str], share: float) -> Target:
    """Return a device with a share of some figures, and its name."""
    values = {name: getattr(target, name) for name in fields}
    changed = {name: type(v)(v * share) for name, v in values.items() if v is not None}
    if "shared_bytes_per_block" in changed:
        changed["shared_bytes_per_block"] -= target.shared_reserved_bytes_per_block // 2
    return replace(target, **changed)


def slowed(
    tasks: Sequence[DeviceTask],
    target: Target,
    records: Mapping[int, Sequence[Replayed]],
) -> dict[str, Any]:
    """Count what retarget says of a device's records at a share of its bandwidth."""
    slow = limited(target, ("dram_bytes_per_s", "measured_dram_bytes_per_s"), SLOW_SHARE)
    gains = []
    for number, task in enumerate(tasks):
        record = records[number][0]
        here, there = (dict(enumerate(task.predicted(own).tolist())) for own in (slow, target))
        timed = dict(sorted(record.us.items(), key=lambda item: item[1])[:MOST_TIMED])
        expected = expected_us(here, there, timed)
        gains.append(expected[record.best] / expected[best_of(expected, record.best, timed)])
    moved_on = [gain for gain in gains if gain > 1.0]
    return {
        "tasks": len(tasks),
        "no longer pays": len(moved_on),
        "expected gain there": round(geometric_mean(moved_on), 3) if moved_on else None,
    }


def other_shapes(oracles: Mapping[str, Path]) -> dict[str, Any]:
    """Return what the config of another shape of the same device keeps, by doublings between."""
    tasks = [task for path in oracles.values() for task in load_oracle(path).tasks]
    times = [{str(row.config): _ms(row) for row in t.rows if row.ms is not None} for t in tasks]
    shares: dict[str, list[float]] = {}
    for here, own in zip(tasks, times, strict=True):
        for there, other in zip(tasks, times, strict=True):
            same = (here.kernel, here.dtype) == (there.kernel, there.dtype)
            away = distance(here.shape, there.shape) if same and here is not there else None
            winner = min(other, key=lambda config: other[config])
            if away is None or winner not in own:
                continue
            bucket = "up to 2" if away <= 2 else "up to 4" if away <= 4 else "more"
            shares.setdefault(bucket, []).append(min(own.values()) / own[winner])
    return {"on": "H200", "kept by doublings apart": _summary(shares)}


def main() -> None:
    """Replay, print and write the result."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--oracle", type=Path, help="the oracle's recorded timings on an H200")
    parser.add_argument("--output", type=Path, default=RESULTS / "devices.json")
    options = parser.parse_args()
    oracles = {**FILES, **({"oracle": options.oracle} if options.oracle else {})}
    start = time.perf_counter()
    tasks = device_tasks(oracles)
    results: dict[str, Any] = {}
    for one, other in PAIRS:
        old, new = load_target(one), load_target(other)
        records = {
            number: [record_of(task, old, seed) for seed in range(SEEDS)]
            for number, task in enumerate(tasks)
        }
        own = {"as it is": replay(tasks, old, new, records)}
        for name, fields in HALVED.items():
            own[name] = replay(tasks, old, limited(new, fields, 0.5), records)
        own[f"{SLOW_SHARE:.0%} of the bandwidth, of {one} itself"] = slowed(tasks, old, records)
        results[f"{one} to {other}"] = own
        for name, result in own.items():
            for what, row in result.get("kept", {}).items():
                print(f"{one} to {other}, {name}: {what}: {row['mean']:.3f} {row['worst']:.3f}")
    about = {
        "tasks": len(tasks),
        "configs": sum(len(task.configs) for task in tasks),
        "timings": TIMINGS,
        "seeds": SEEDS,
        "scorer": "roofline",
        "seconds": round(time.perf_counter() - start, 1),
    }
    write(options.output, {**about, "moves": results, "other_shapes": other_shapes(oracles)})


if __name__ == "__main__":
    main()
