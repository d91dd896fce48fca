"""The funnel's first stage: rank every config by the arithmetic of its tile, without TTGIR."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from asmtune.base.deadline import paused_collection
from asmtune.base.errors import ParseError
from asmtune.core.config import AMD_OPTIONS, OPTION_AXES, Config
from asmtune.core.hardware.model import Target
from asmtune.core.records.artifacts import Failure
from asmtune.core.records.verdicts import Features, Unlisted, Verdict
from asmtune.core.space.table import LACKING, Place, SpaceTable
from asmtune.ir.ttir.work import Work
from asmtune.predict.features.sketch.reader import can_sketch
from asmtune.predict.features.tile.demands import Demands, Options, Typical
from asmtune.predict.features.tile.estimate import estimate, typical_of
from asmtune.predict.features.tile.facts import tile_facts
from asmtune.predict.features.tile.interpolate import Carried, Places, Row, TileFacts, carried_over
from asmtune.predict.prune.front import ProblemAnalysis, failed
from asmtune.predict.prune.rounds import WORTH_IT
from asmtune.predict.score.roofline import predict, predicted_us
from asmtune.triton_api.jit_functions import is_gluon

_OPTIONS: Final = frozenset({*OPTION_AXES, *AMD_OPTIONS})

MOST_TILES: Final = 24
"""Tiles whose TTIR is made; other tiles take their numbers from these. One takes 15 to 30 ms."""


@dataclass(frozen=True)
class UnreadableKernel:
    """Reason why the arithmetic cannot read a kernel."""

    reason: str


GLUON_NOTE: Final = (
    "a Gluon kernel has no TTIR: its front end runs for every config, and none is estimated by "
    "tile arithmetic"
)
"""Note of reports and runs on a kernel whose layouts are its own."""

GO_ON: Final = 20_000
"""Configs of a larger space that go on from their predicted time, with features, to sketches and to
a search's model: a hundred times as many as are sketched. One takes 8 KB."""

AT_ONCE: Final = 32_768
"""Configs whose columns are computed at once, in 100 MB."""


@dataclass(frozen=True)
class Narrowed:
    """The configs of a space that go on.

    Attributes:
        configs: those that go on, in the space's order.
        unlisted: counts of the others.
    """

    configs: Sequence[Config]
    unlisted: tuple[Unlisted, ...] = ()


def narrowed(
    front: ProblemAnalysis, configs: Sequence[Config], most: int = 0, wanted: Iterable[Config] = ()
) -> Narrowed:
    """Leave out the configs of a large space that rank worst by their estimated time.

    The best `GO_ON` or 1.5 times `most` go on, and the first, those that are `wanted` and one with
    each value of an axis, as many at most; all of a smaller space, and all where the arithmetic
    cannot read the kernel.

    Raises:
        ProblemError: arguments and config do not fit the kernel.
    """
    most = max(GO_ON, math.ceil(WORTH_IT * most))
    if len(configs) <= most:
        return Narrowed(configs)
    points = SpaceTable.of(configs)
    launches = _launches(front, points)
    table = _table(front, launches)
    if isinstance(table, UnreadableKernel):
        return Narrowed(configs)
    left = launches.places
    us = np.empty(len(left))
    for places, columns in table.columns():
        # The time of one that seems not to fit would be one of a program that fits.
        fits = columns["shared_bytes"] <= front.target.shared_bytes_per_block
        us[places] = np.where(fits, predicted_us(columns, front.target), np.inf)
    best = left[np.argsort(us, kind="stable")[:most]]
    found = [place for config in wanted if (place := points.find(config)) is not None]
    firsts = (points.groups([name])[0] for name in points.values)
    examples = [place for first in firsts for place in first[:: -(-len(first) // most)]]
    chosen = np.unique([0, *found, *examples, *best])
    counts = Counter({("estimate", "estimated_only"): len(np.setdiff1d(left, chosen))})
    for verdict, places in launches.refused:
        counts["rules", verdict.reasons[0].rule] += len(np.setdiff1d(places, chosen))
    unlisted = tuple(Unlisted(*key, count) for key, count in counts.items() if count)
    return Narrowed(points.take(chosen), unlisted)


@dataclass(frozen=True)
class _Launches:
    """The points of a space that can be launched, and verdicts on the others.

    Attributes:
        points: that can be launched.
        places: of these in the space.
        programs: of each launch.
        refused: verdicts that refuse, each with its places in the space.
        waits: whether a grid cannot be evaluated before its config's pre_hook.
    """

    points: SpaceTable
    places: Place
    programs: Row
    refused: list[tuple[Verdict, Place]]
    waits: bool = False


def _launches(front: ProblemAnalysis, points: SpaceTable) -> _Launches:
    """Apply the rules that read compile options alone, then evaluate the grids."""
    first, back = points.groups(name for name in points.values if name in _OPTIONS)
    verdicts = [front.by_options(points[place]) for place in first.tolist()]
    kept = np.array([verdict.kept for verdict in verdicts], dtype=bool)
    refused = [(verdicts[i], np.flatnonzero(back == i)) for i in np.flatnonzero(~kept)]
    left = np.flatnonzero(kept[back])
    if not len(left):
        return _Launches(points.take(left), left, np.zeros(0), refused)
    programs, lost = _programs(front, points.take(left))
    if any(config.pre_hook is not None for config in points.given.values()):
        # A hook may set what the grid needs.
        return _Launches(points.take(left), left, programs, refused, waits=bool(lost))
    refused += [(verdict, left[places]) for verdict, places in lost]
    able = programs > 0
    return _Launches(points.take(left[able]), left[able], programs[able], refused)


@paused_collection()
def estimated(
    front: ProblemAnalysis, configs: Sequence[Config]
) -> list[Verdict] | UnreadableKernel:
    """Return a verdict with estimated features on each config, or why the kernel allows none.

    Configs that the rules of the config alone refuse are dropped; nothing else is.
    """
    points = SpaceTable.of(configs)
    launches = _launches(front, points)
    table = _table(front, launches)
    if isinstance(table, UnreadableKernel):
        return table
    verdicts = {
        int(place): replace(verdict, config=points[place])
        for verdict, places in launches.refused
        for place in places
    }
    for places, columns in table.columns():
        rows = np.stack(list(columns.values()), axis=1).tolist()
        for place, row in zip(places.tolist(), rows, strict=True):
            features = Features(dict(zip(columns, row, strict=True)))
            config = launches.points[place]
            verdicts[int(launches.places[place])] = _verdict(config, features, front)
    return [verdicts[place] for place in range(len(points))]


@dataclass(frozen=True)
class _Table:
    """Holds what columns are estimated from: the numbers of tiles, and the launch's options."""

    target: Target
    options: Options
    tiles: Place
    carried: list[Carried]

    def columns(self) -> Iterator[tuple[Place, dict[str, Row]]]:
        """Yield places, and a column for each feature, for some of the points at a time."""
        for carried in self.carried:
            chosen = np.flatnonzero(np.isin(self.tiles, carried.members))
            chosen = chosen[np.argsort(self.tiles[chosen], kind="stable")]
            typical = None
            if len(chosen) > AT_ONCE:
                even = chosen[:: -(-len(chosen) // AT_ONCE)]
                typical = typical_of(self._demands(carried, even))
            for start in range(0, len(chosen), AT_ONCE):
                places = chosen[start : start + AT_ONCE]
                yield places, estimate(self._demands(carried, places, typical))

    def _demands(self, carried: Carried, places: Place, typical: Typical | None = None) -> Demands:
        tiles, rows = np.unique(self.tiles[places], return_inverse=True)
        numbers = carried.numbers(tiles)[rows.ravel()]
        options = self.options.at(places)
        return Demands(carried.structure, numbers, options, self.target, typical)


def _table(front: ProblemAnalysis, launches: _Launches) -> _Table | UnreadableKernel:
    """Lower a sample of the points' tiles, and carry their facts over to the others."""
    if reason := _unreadable(front, launches):
        return UnreadableKernel(reason)
    points = launches.points
    first, tiles = points.groups(points.tile_names)
    places = Places.of(points.take(first), points.tile_names)
    facts: dict[int, TileFacts] = {}
    for tile in places.sample(MOST_TILES):
        read = _facts(front, points[int(first[tile])])
        if isinstance(read, TileFacts):
            facts[tile] = read
        else:
            reason = read
    if not facts:
        return UnreadableKernel(reason)
    if options := front.lowering.options_read:
        return UnreadableKernel(f"its TTIR depends on {', '.join(sorted(options))}")
    return _Table(front.target, _options(launches), tiles, carried_over(places, facts))


def _unreadable(front: ProblemAnalysis, launches: _Launches) -> str:
    """Return why no config can be estimated, in words; "" if nothing speaks against it."""
    if not can_sketch(front.target):
        return f"the layouts of {front.target.arch} are not known"
    if is_gluon(front.problem.kernel):
        return GLUON_NOTE
    if any(config.ir_override is not None for config in launches.points.given.values()):
        return "a config has hand-edited IR"
    if not len(launches.points):
        return "no config is left"
    if launches.waits:
        return "a grid cannot be evaluated before its config's pre_hook"
    return ""


@paused_collection()
def sampled_works(front: ProblemAnalysis, configs: Sequence[Config]) -> list[Work]:
    """Return the works of configs that are lowered already, and of one config a tile.

    It lowers a sample of many tiles, which shows each value of each axis.
    """
    points = SpaceTable.of(configs)
    tiles = points.take(points.groups(points.tile_names)[0])
    if len(tiles) > MOST_TILES:
        tiles = tiles.take(np.array(Places.of(tiles, tiles.tile_names).sample(MOST_TILES)))
    return front.works([*front.analysed(configs), *tiles])


def _facts(front: ProblemAnalysis, config: Config) -> TileFacts | str:
    work = front.work(config)
    if isinstance(work, Failure):
        return str(work)
    kernel = front.kernel(config)
    if kernel is None:
        return "its TTIR cannot be read"
    try:
        return tile_facts(kernel, work)
    except (ParseError, LookupError, ValueError) as error:
        return f"its TTIR cannot be read: {error}"


def _options(launches: _Launches) -> Options:
    points = launches.points

    def column(name: str) -> Row:
        values = [0.0 if v in (None, LACKING) else float(v) for v in points.values.get(name, (0,))]
        return np.array(values)[points.columns.get(name, np.zeros(len(points), dtype=np.intp))]

    return Options(column("num_warps"), column("num_stages"), column("maxnreg"), launches.programs)


def _programs(
    front: ProblemAnalysis, points: SpaceTable
) -> tuple[Row, list[tuple[Verdict, Place]]]:
    """Return the programs of each launch, and verdicts on points without a grid, with their places.

    The grid is evaluated once for each combination of what it reads.
    """
    names: set[str] = set()
    while True:
        sizes, lost = [], []
        first, back = points.groups(sorted(names))
        for at, place in enumerate(first.tolist()):
            grid, read = front.problem.watched_grid(points[place])
            if more := (read & points.values.keys()) - names:
                names |= more
                break
            if isinstance(grid, Failure):
                lost.append((failed(points[place], grid), np.flatnonzero(back == at)))
            sizes.append(0.0 if isinstance(grid, Failure) else float(math.prod(grid)))
        else:
            return np.array(sizes)[back], lost


def _verdict(config: Config, features: Features, front: ProblemAnalysis) -> Verdict:
    prediction = predict(features, front.target)
    return Verdict(
        config,
        kept=True,
        features=features,
        predicted_us=round(prediction.us, 2),
        bottleneck=prediction.bottleneck,
    )
