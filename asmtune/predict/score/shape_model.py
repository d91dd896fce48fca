"""A model of one kernel's times over shapes and configs, fitted to the timings of its records.

It is Gaussian process regression of log time, relative within a shape: shapes compare configs,
and the time of a shape itself is not predicted. The mean is arithmetic on the launch, `base` of
`shape_features`; the rest is fitted to the timings, over quantities of that module, so that nothing
is compiled. A fit takes up to some tenths of a second, a pick about a millisecond.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from asmtune.core.config import Config
from asmtune.predict.score.shape_features import (
    ConfigColumns,
    Layout,
    Matrix,
    Quantities,
    sizes_of,
)

FEWEST_SHAPES: Final = 3
"""Tuned shapes that a model is fitted to: with fewer there is none to check a pick on."""

FEWEST_CHECKS: Final = 4
"""Tuned shapes that must confirm a model: of three, two in a row were confirmed by chance, and
picks at a fourth shape kept 0.75."""

WIDE: Final = 0.025
"""Expected share of the speed lost above which a spread is wide."""

_FEWEST_ALIKE: Final = 2  # tuned shapes of the same code, divisible by 16 in the same sizes
_MOST_ROWS: Final = 300  # timings; a fit takes their number to the third power
_LEAST_ROWS: Final = 15  # of a shape
_MOST_CANDIDATES: Final = 64
_MOST_OF_SHAPE: Final = 40
_LEADING: Final = 20  # of a shape, whose timings at other shapes count as well
_SHORTLIST: Final = 8  # candidates whose spread is worked out
_CLIP: Final = 0.7  # of log slowdown: how slow a slow config is matters little
_CAUTION: Final = 0.87  # standard deviations that are added to a predicted time

# Scales, in doublings, and shares of the variance. They were fitted to timings of one search each
# of 73 recorded kernels: to what a model of a kernel's other shapes says of the one left out.
_AXES, _REGIME, _SIZES, _RELATIVE, _ALIGNMENT = 2.7, 2.7, 6.0, 3.0, 1.05
_CONFIG, _IDENTITY, _ALWAYS, _BY_REGIME, _BY_SIZES = 0.13, 0.005, 0.11, 0.75, 0.3
_LINEAR, _BY_RELATIVE, _NOISE, _LEVEL = 0.065, 0.13, 0.003, 25.0
_UNKNOWN: Final = 0.1  # log of speed: other code, nothing to compare with, too few checks


@dataclass(frozen=True)
class TimedShape:
    """Times of configs in microseconds at one shape."""

    shape: Mapping[str, Any]
    us: Mapping[Config, float]


@dataclass(frozen=True)
class ShapePick:
    """A config picked for a shape.

    Attributes:
        config: the config.
        loss: the expected share of the best speed that it loses.
    """

    config: Config
    loss: float

    @property
    def is_wide(self) -> bool:
        """Return whether the loss is too uncertain to do without tuning."""
        return self.loss > WIDE


@dataclass(frozen=True)
class _Points:
    """Launches with what the covariance needs of them; sizes have one row if the shape is one."""

    quantities: Quantities
    sizes: Matrix
    aligned: Matrix
    config: NDArray[np.intp]

    def covariance(self, other: _Points, of_configs: Matrix | None = None) -> Matrix:
        """Return the covariance with other launches, without the level of a shape."""
        here, there = self.quantities, other.quantities
        aligned = _apart(self.aligned, other.aligned) * (_ALIGNMENT**2 / 2)
        regime = np.exp(-_apart(here.regime, there.regime) / (2 * _REGIME**2) - aligned)
        sizes = np.exp(-np.sqrt(_apart(self.sizes, other.sizes)) / _SIZES - aligned)
        relative = np.exp(-_apart(here.relative, there.relative) / (2 * _RELATIVE**2) - aligned)
        configs = self.of_configs(other) if of_configs is None else of_configs
        varying = configs * (_ALWAYS + _BY_REGIME * regime + _BY_SIZES * sizes)
        linear: Matrix = here.linear @ there.linear.T
        return np.asarray(varying + _LINEAR * linear + _BY_RELATIVE * relative)

    def of_configs(self, other: _Points) -> Matrix:
        """Return the part that is the same at all shapes."""
        near = np.exp(-_apart(self.quantities.axes, other.quantities.axes) / (2 * _AXES**2))
        equal = self.config[:, None] == other.config[None, :]
        return np.asarray(_CONFIG * near + _IDENTITY * equal)


def _apart(one: Matrix, other: Matrix) -> Matrix:
    """Return squared distances of rows."""
    squares = (one**2).sum(1)[:, None] + (other**2).sum(1)[None, :]
    return np.asarray(np.maximum(squares - 2.0 * one @ other.T, 0.0))


@dataclass(frozen=True)
class _Data:
    """The timings that a model is fitted to, a row each."""

    table: ConfigColumns
    shapes: Sequence[Mapping[str, int]]
    rows: Sequence[NDArray[np.intp]]
    slowdown: Matrix
    sms: int

    @property
    def of_shape(self) -> NDArray[np.intp]:
        return np.repeat(np.arange(len(self.rows)), [len(rows) for rows in self.rows])

    def points(self, layout: Layout) -> _Points:
        parts = zip(self.shapes, self.rows, strict=True)
        return _joined([self.points_at(layout, sizes, rows) for sizes, rows in parts])

    def points_at(
        self, layout: Layout, sizes: Mapping[str, int], rows: NDArray[np.intp]
    ) -> _Points:
        quantities = self.table.quantities(layout, sizes, self.sms, rows)
        place = np.log2(np.array(list(sizes.values()), float))
        aligned = layout.aligned(sizes) / math.sqrt(len(sizes))
        return _Points(quantities, place[None], aligned[None], rows)

    def without(self, shape: int) -> _Data:
        keep = [place for place in range(len(self.rows)) if place != shape]
        shapes = [self.shapes[place] for place in keep]
        rows = [self.rows[place] for place in keep]
        return _Data(self.table, shapes, rows, self.slowdown[self.of_shape != shape], self.sms)


def _joined(parts: Sequence[_Points]) -> _Points:
    """Put the launches of several shapes together."""
    sizes, aligned = (
        np.concatenate([np.repeat(vars(part)[name], len(part.config), 0) for part in parts])
        for name in ("sizes", "aligned")
    )
    config = np.concatenate([part.config for part in parts])
    return _Points(Quantities.joined([part.quantities for part in parts]), sizes, aligned, config)


class _Fit:
    """A posterior over log slowdowns, for one layout."""

    def __init__(self, data: _Data, layout: Layout, points: _Points | None = None) -> None:
        self.data, self.layout = data, layout
        self.points = points = data.points(layout) if points is None else points
        same_shape = data.of_shape[:, None] == data.of_shape[None, :]
        count = len(data.slowdown)
        matrix = points.covariance(points) + _LEVEL * same_shape + _NOISE * np.eye(count)
        rest = data.slowdown - points.quantities.base
        rest = rest - rest.mean()
        self.inverse: Matrix = np.linalg.inv(matrix)
        self.weights: Matrix = self.inverse @ rest
        self.scale = float(rest @ self.weights) / count


@dataclass(frozen=True)
class ShapeModel:
    """A fitted model; `pick` gives the config for a shape.

    Attributes:
        left_out: losses of picks for each tuned shape by the timings of all others; None where
            the pick was not timed at the shape.
        factor: what expected losses are multiplied by, so that they agree with `left_out`.
    """

    fit: _Fit
    candidates: NDArray[np.intp]
    of_configs: Matrix
    left_out: tuple[float | None, ...] = ()
    factor: float = 1.0

    @classmethod
    def of(
        cls,
        timed: Sequence[TimedShape],
        sms: int,
        shape: Mapping[str, Any],
        programs: Callable[[Config], int],
    ) -> ShapeModel | None:
        """Fit a model; None if there are too few shapes, or the shapes do not compare.

        Args:
            timed: the tuned shapes.
            sms: multiprocessors of the device.
            shape: any shape of the kernel.
            programs: number of programs that a config is launched with at that shape.
        """
        shapes = [sizes_of(one.shape) for one in timed]
        names = list(shapes[0]) if shapes else []
        if len(timed) < FEWEST_SHAPES or not names or any(list(own) != names for own in shapes):
            return None
        data = _data(timed, shapes, sms)
        axes = data.table.tiled
        launches = [(config, programs(config)) for config in _spread(data.table.configs)]
        at_shape = sizes_of(shape)
        varying = [name for name in names if len({own[name] for own in shapes}) > 1]
        ordered = {name: at_shape[name] for name in dict.fromkeys([*varying, *names])}
        fit = _Fit(data, Layout.of(ordered, axes, launches))
        model = cls._ready(fit)
        checks = [_left_out(data, fit, place, timed[place].us) for place in range(len(timed))]
        known = [(loss, expected) for loss, expected in checks if loss is not None]
        factor = 1.0
        if known:
            lost, expected = (sum(part) for part in zip(*known, strict=True))
            factor = min(max((lost + 0.01) / (expected + 0.01), 0.25), 4.0)
        left_out = tuple(loss for loss, _ in checks)
        return cls(fit, model.candidates, model.of_configs, left_out, factor)

    @classmethod
    def _ready(cls, fit: _Fit) -> ShapeModel:
        candidates = _candidates(fit.data)
        at_any = fit.data.points_at(fit.layout, fit.data.shapes[0], candidates)
        return cls(fit, candidates, at_any.of_configs(fit.points))

    def pick(
        self, shape: Mapping[str, Any], allowed: Callable[[Config], bool] = lambda _config: True
    ) -> ShapePick | None:
        """Pick the config for a shape; None if no candidate is `allowed`."""
        chosen = self._choice(shape, allowed)
        if chosen is None:
            return None
        config, loss, is_known = chosen
        checked = sum(loss is not None for loss in self.left_out) >= FEWEST_CHECKS
        unknown = 0.0 if is_known and checked else _UNKNOWN
        return ShapePick(config, -math.expm1(-loss * self.factor - unknown))

    def _choice(
        self, shape: Mapping[str, Any], allowed: Callable[[Config], bool] = lambda _config: True
    ) -> tuple[Config, float, bool] | None:
        """Return the config, the log of the speed it may lose, and whether data are like it."""
        fit, data = self.fit, self.fit.data
        sizes = sizes_of(shape)
        points = data.points_at(fit.layout, sizes, self.candidates)
        shared = points.covariance(fit.points, self.of_configs)
        expected = shared @ fit.weights + points.quantities.base
        best: list[int] = []
        for place in np.argsort(expected, kind="stable").tolist():
            if allowed(data.table.configs[self.candidates[place]]):
                best.append(place)
                if len(best) == _SHORTLIST:
                    break
        if not best:
            return None
        chosen, loss = _chosen(fit, points, shared, expected, np.array(best))
        config = data.table.configs[self.candidates[chosen]]
        same_code = (fit.points.aligned == points.aligned).all(axis=1)
        is_known = len(np.unique(data.of_shape[same_code])) >= _FEWEST_ALIKE
        alone = len(best) == 1 and len(data.table.configs) > 1
        return config, loss, is_known and not alone


def _chosen(
    fit: _Fit, points: _Points, shared: Matrix, expected: Matrix, best: NDArray[np.intp]
) -> tuple[int, float]:
    """Return the place of the best of a shortlist, and the log of the speed it may lose."""
    own = replace(points, quantities=points.quantities.at(best), config=points.config[best])
    part = shared[best]
    posterior = (own.covariance(own) - part @ fit.inverse @ part.T) * max(fit.scale, 1e-9)
    means, diagonal = expected[best], np.diag(posterior)
    away = np.sqrt(np.maximum(diagonal - 2 * posterior.mean(1) + posterior.mean(), 0.0))
    at = int(np.argmin(means + _CAUTION * away))
    ahead = (means[at] - means).tolist()
    spreads = np.sqrt(np.maximum(diagonal[at] + diagonal - 2 * posterior[at], 1e-12)).tolist()
    gains = (_expected_gain(gap, sd) for gap, sd in zip(ahead, spreads, strict=True))
    return int(best[at]), max(gains, default=0.0) if len(best) > 1 else 0.0


def _expected_gain(gap: float, sd: float) -> float:
    """Return the mean of a normal difference where it is above 0."""
    z = gap / sd
    density = math.exp(-z * z / 2) / math.sqrt(2 * math.pi)
    return sd * density + gap * 0.5 * (1 + math.erf(z / math.sqrt(2)))


def _data(timed: Sequence[TimedShape], shapes: Sequence[Mapping[str, int]], sms: int) -> _Data:
    """Choose the timings to fit: the fastest of each shape, and others evenly."""
    each = max(_LEAST_ROWS, _MOST_ROWS // len(timed))
    ordered = [sorted(one.us, key=one.us.__getitem__) for one in timed]
    leading = {config for own in ordered for config in own[:_LEADING]}
    chosen = []
    for own in ordered:
        if len(own) > 3 * _MOST_OF_SHAPE:
            rest = [config for config in own[_MOST_OF_SHAPE:] if config in leading]
            own = own[:_MOST_OF_SHAPE] + rest
        if len(own) > each:
            places = np.linspace(each // 2, len(own) - 1, each - each // 2).astype(int)
            own = own[: each // 2] + [own[place] for place in dict.fromkeys(places.tolist())]
        chosen.append(own)
    every = (config for own in chosen for config in own)
    number = {config: place for place, config in enumerate(dict.fromkeys(every))}
    rows = [np.array([number[config] for config in own], np.intp) for own in chosen]
    slow = [
        math.log(one.us[config] / min(one.us.values()))
        for one, own in zip(timed, chosen, strict=True)
        for config in own
    ]
    clipped = [x if x < _CLIP else _CLIP * (1 + math.log(x / _CLIP)) for x in slow]
    return _Data(ConfigColumns(list(number)), shapes, rows, np.array(clipped), sms)


def _spread(configs: Sequence[Config]) -> list[Config]:
    """Return some configs, evenly chosen."""
    return list(configs[:: max(1, len(configs) // 12)])


def _candidates(data: _Data) -> NDArray[np.intp]:
    """Return the configs that a pick may name: the fastest of each shape, rank by rank."""
    found: dict[int, None] = {}
    for rank in range(max(map(len, data.rows))):
        found.update({int(rows[rank]): None for rows in data.rows if rank < len(rows)})
        if len(found) >= _MOST_CANDIDATES:
            break
    return np.array(list(found)[:_MOST_CANDIDATES], np.intp)


def _left_out(
    data: _Data, fit: _Fit, place: int, us: Mapping[Config, float]
) -> tuple[float | None, float]:
    """Return the log of the speed that a pick loses at a shape it was not fitted to, if known."""
    rest = data.without(place)
    model = ShapeModel._ready(_Fit(rest, fit.layout))
    choice = model._choice(data.shapes[place])
    if choice is None or choice[0] not in us:
        return None, 0.0
    return math.log(us[choice[0]] / min(us.values())), choice[1]
