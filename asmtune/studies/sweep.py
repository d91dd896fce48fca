"""Ranges of shapes: which of them to time so that the rest can be interpolated, and what is known.

`model_of` fits a kernel's model to what the stores hold, without a GPU. A `Sweep` tunes the
ends and the middle of a range, then wherever the model's spread is widest.
"""

from __future__ import annotations

import itertools
import math
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

from asmtune.base.errors import InputError, ProblemError
from asmtune.base.text import shortened
from asmtune.core.config import Config
from asmtune.core.inputs.shapes import unique
from asmtune.core.inputs.sizes import LARGEST
from asmtune.core.kernel_module import KernelModule, Shape
from asmtune.core.problem import Problem
from asmtune.core.records.tuned import TuneRecord
from asmtune.predict.score.shape_model import WIDE, ShapeModel, ShapePick
from asmtune.runtime.misses.interpolation import fitted, group_of
from asmtune.store.lookup import reusable
from asmtune.store.shipped import shipped_of
from asmtune.studies.stored import StoredLaunch
from asmtune.tuning.request import TuningResult

if TYPE_CHECKING:
    from asmtune.store.safe_store import SafeStore
    from asmtune.studies.tuning_queue import TuningGpu, TuningQueue

MOST_SHAPES: Final = 4096
"""Shapes of a range that are looked at."""

_RANGE: Final = re.compile(r"(\d+)\.\.(\d+)")
_BUDGET: Final = re.compile(r"(\d+(?:\.\d+)?)(s|m|min|h)")
_SECONDS: Final = {"s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0}


def budget_s(text: str) -> float:
    """Read a duration such as `60s`, `5m` or `1h`.

    Raises:
        InputError: it is none above 0, or has no unit.
    """
    match = _BUDGET.fullmatch(text.strip())
    seconds = float(match[1]) * _SECONDS[match[2]] if match else 0.0
    if not 0 < seconds < math.inf:
        raise InputError(
            f"--budget: {shortened(text)!r} is no duration above 0 with a unit; write 60s, 5m or 1h"
        )
    return seconds


def parse_sweep(text: str, module: KernelModule) -> dict[str, tuple[int, int]]:
    """Read `M=1..8192,N=4096` to the least and the largest value of each size.

    Raises:
        InputError: a part is malformed, or no size is a range.
        ProblemError: a name is missing, or unknown to the kernel.
    """
    parts = [part.partition("=") for part in text.split(",")]
    for name, sign, value in parts:
        if not name.strip().isidentifier() or not sign or not value.strip():
            part = shortened(f"{name}{sign}{value}")
            raise InputError(f"--sweep: {part!r} is no size: write M=1..8192,N=4096")
    given = unique("--sweep", ((name.strip(), value.strip()) for name, _, value in parts))
    ranges = {name: _range(name, value) for name, value in given.items()}
    for end in (0, 1):
        module.check_shape({name: ends[end] for name, ends in ranges.items()})
    if all(low == high for low, high in ranges.values()):
        raise InputError(f"--sweep: {shortened(text)!r} has no range; write M=1..8192, or --shape")
    return ranges


def _range(name: str, value: str) -> tuple[int, int]:
    match = _RANGE.fullmatch(value)
    if match is None and not value.isdecimal():
        raise InputError(
            f"--sweep: {name}={shortened(value)} is neither a whole number nor a range of such; "
            f"write {name}=1..8192"
        )
    low, high = (int(match[1]), int(match[2])) if match else (int(value), int(value))
    if low > high:
        raise InputError(f"--sweep: {name}={value} is reversed; write {name}={high}..{low}")
    if low < 1 or high >= LARGEST:
        raise InputError(f"--sweep: {name}={value} goes beyond 1 to 2**63 - 1")
    return low, high


def shapes_of_ranges(ranges: Mapping[str, tuple[int, int]]) -> list[dict[str, int]]:
    """List the shapes of ranges that are looked at, in order: the ends and steps of a doubling.

    Between them are halves of steps, and sizes that 16 does not divide, for which Triton compiles
    other code.
    """
    lists = [_points(low, high) for low, high in ranges.values()]
    while math.prod(map(len, lists)) > MOST_SHAPES:
        longest = max(range(len(lists)), key=lambda place: len(lists[place]))
        points = lists[longest]
        lists[longest] = sorted({*points[::2], points[-1]})
    return [dict(zip(ranges, values, strict=True)) for values in itertools.product(*lists)]


def _points(low: int, high: int) -> list[int]:
    points = {low, high}
    for power in range(high.bit_length()):
        step = 1 << power
        points |= {step, 3 * step // 2, step + 1 if step >= 16 else step}
    return sorted(point for point in points if low <= point <= high)


def stored_records(
    launch: StoredLaunch, device: str, store: SafeStore | None
) -> tuple[TuneRecord, ...]:
    """Return the valid records of a launch's kernel that differ from it in sizes alone."""
    key, expected = launch.identity(device)
    stored = store.records(key.kernel) if store is not None else []
    group = group_of(key)
    return tuple(
        record
        for record in (*stored, *shipped_of(key.kernel))
        if group_of(record.key) == group
        if reusable(record.provenance.source, record.provenance.triton, expected)
    )


def model_of(launch: StoredLaunch, device: str, records: Sequence[TuneRecord]) -> ShapeModel | str:
    """Fit a model to a kernel's records; else say why there is none."""
    key, _ = launch.identity(device)

    def programs(config: Config) -> int:
        return math.prod(launch.problem.programs(config))

    return fitted(records, key, key.shape, programs)


@dataclass
class Sweep:
    """Shapes of a range, those of them that are tuned, and the model between them.

    Attributes:
        queue: makes problems and tunes them.
        device: the GPU's name.
        shapes: the shapes that are looked at.
        records: records of the kernel at any shapes, in and out of the range.
        results: of shapes that this sweep has tuned or tried.
    """

    queue: TuningQueue
    device: str
    shapes: Sequence[Shape]
    records: list[TuneRecord]
    results: list[TuningResult] = field(default_factory=list)
    model: ShapeModel | str = "nothing is tuned"
    _keys: dict[str, Mapping[str, Any]] = field(default_factory=dict)

    @classmethod
    def of(
        cls, queue: TuningQueue, device: str, shapes: Sequence[Shape], store: SafeStore | None
    ) -> Sweep:
        """Begin a sweep with what the stores hold."""
        (first,) = queue.check(shapes[:1])
        records = stored_records(queue.launched(first), device, store)
        return cls(queue, device, shapes, list(records))

    def run(self, machine: TuningGpu, seconds: float) -> Iterator[TuningResult]:
        """Tune shapes until the spread is narrow everywhere or the time is over."""
        deadline = time.monotonic() + seconds
        while (left := deadline - time.monotonic()) > 0 and (shape := self.next()) is not None:
            effort = machine.tuner.options.effort
            most = min(effort.limits.seconds, left)
            limited = replace(effort, limits=replace(effort.limits, seconds=most))
            options = replace(machine.tuner.options, effort=limited)
            own = replace(machine, tuner=replace(machine.tuner, options=options))
            for result in self._tuned(shape, own):
                self.results.append(result)
                if result.record is not None:
                    self.records.append(result.record)
                yield result

    def _tuned(self, shape: Shape, machine: TuningGpu) -> Iterator[TuningResult]:
        """Tune a shape; one that the module refuses, as between the ends, stops no other."""
        try:
            yield from self.queue.results([self._problem(shape)], machine)
        except ProblemError as error:
            other = replace(self._problem(self.shapes[0]), shape=shape)
            key, _ = self.queue.launched(self._problem(self.shapes[0])).identity(self.device)
            request = machine.tuner.request(other, replace(key, shape=shape), self.queue.space)
            yield TuningResult(request, "failed", error=str(error))

    def next(self) -> Shape | None:
        """Return the shape to tune next; None if the spread is narrow at all that are left."""
        known = {self._text(record.key.shape) for record in self.records}
        tried = {self._text(result.request.problem.shape) for result in self.results}
        left = [s for s in self.shapes if self._text(self._key(s)) not in known]
        left = [s for s in left if self._text(s) not in tried]
        for start in (self.shapes[0], self.shapes[-1], self.shapes[len(self.shapes) // 2]):
            if start in left:
                return start
        self.fit()
        if isinstance(self.model, str):
            return left[len(left) // 2] if left else None
        picks = [(self.pick(shape), shape) for shape in left]
        wide = [(pick.loss, n) for n, (pick, _) in enumerate(picks) if pick and pick.is_wide]
        return picks[max(wide)[1]][1] if wide else None

    def pick(self, shape: Shape) -> ShapePick | None:
        """Return the tuned config of a shape, with no loss, or the model's."""
        key = self._text(self._key(shape))
        for record in self.records:
            if self._text(record.key.shape) == key:
                return ShapePick(record.winner.plain, 0.0)
        if isinstance(self.model, str):
            return None
        space = self.queue.space
        return self.model.pick(self._key(shape), lambda c: space.matching(c, **shape) is not None)

    def rows(self) -> list[dict[str, Any]]:
        """Return the config of each shape as values of JSON, and where it is from."""
        self.fit()
        rows = []
        for shape in self.shapes:
            pick = self.pick(shape)
            known = any(dict(r.key.shape) == dict(self._key(shape)) for r in self.records)
            rows.append(
                {
                    "shape": dict(shape),
                    "device": self.device,
                    "how": "known" if known else "unknown" if pick is None else "interpolated",
                    "config": None if pick is None else pick.config.to_dict(),
                    "expected_loss": None if pick is None or known else round(pick.loss, 4),
                    "wide": pick is None or pick.is_wide,
                    "why": self.model if isinstance(self.model, str) else "",
                }
            )
        return rows

    def pieces(self) -> list[tuple[Config, list[Shape]]]:
        """Return runs of neighbouring shapes that get the same config, in the range's order."""
        pieces: list[tuple[Config, list[Shape]]] = []
        for shape in self.shapes:
            pick = self.pick(shape)
            if pick is None:
                continue
            if not pieces or pieces[-1][0] != pick.config:
                pieces.append((pick.config, []))
            pieces[-1][1].append(shape)
        return pieces

    def shares(self) -> list[float]:
        """Return the expected share of the best speed at each shape that a config is known for."""
        return [1 - pick.loss for pick in map(self.pick, self.shapes) if pick is not None]

    def fit(self) -> None:
        """Fit the model to all records that there are now."""
        launch = self.queue.launched(self._problem(self.shapes[-1]))
        self.model = model_of(launch, self.device, self.records)

    def _problem(self, shape: Shape) -> Problem:
        return self.queue.check([shape])[0]

    def _key(self, shape: Shape) -> Mapping[str, Any]:
        """Return the shape of a shape's key, which a decorated kernel makes of its arguments."""
        if self.queue.tuner is None:
            return shape
        text = self._text(shape)
        if text not in self._keys:
            try:
                launch = self.queue.launched(self._problem(shape))
                self._keys[text] = launch.identity(self.device)[0].shape
            except ProblemError:  # told when the shape is tried
                self._keys[text] = shape
        return self._keys[text]

    @staticmethod
    def _text(shape: Mapping[str, Any]) -> str:
        return repr(sorted((name, repr(value)) for name, value in shape.items()))


def is_narrow(sweep: Sweep) -> bool:
    """Return whether every shape of a sweep has a config with a narrow spread."""
    picks = [sweep.pick(shape) for shape in sweep.shapes]
    return all(pick is not None and pick.loss <= WIDE for pick in picks)
