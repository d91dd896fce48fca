"""The model of a kernel's times over shapes: where sizes go, what it picks, how sure it is."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from asmtune.core.config import Config
from asmtune.predict.score.shape_features import Layout, sizes_of
from asmtune.predict.score.shape_model import ShapeModel, TimedShape


def tiled(m: int, n: int, **others: Any) -> Config:
    """A config of two tiles."""
    return Config({"BLOCK_M": m, "BLOCK_N": n, **others}, num_warps=4)


TILES = [tiled(m, n) for m in (16, 64, 256) for n in (32, 128)]


@pytest.mark.parametrize(
    ("sizes", "axes", "grid", "tiles", "loops", "programs", "splits"),
    [
        # A matmul: two tiles are programs, the third is a loop.
        (
            {"M": 1000, "N": 3000, "K": 512},
            ("BLOCK_K", "BLOCK_M", "BLOCK_N"),
            lambda v: math.ceil(1000 / v["BLOCK_M"]) * math.ceil(3000 / v["BLOCK_N"]),
            {"BLOCK_M": "M", "BLOCK_N": "N", "BLOCK_K": "K"},
            {"BLOCK_K"},
            set(),
            set(),
        ),
        # Names that say nothing: the grid does.
        (
            {"P": 1000, "D": 3000},
            ("BLOCK_M", "BLOCK_N"),
            lambda v: math.ceil(3000 / v["BLOCK_M"]) * math.ceil(1000 / v["BLOCK_N"]),
            {"BLOCK_M": "D", "BLOCK_N": "P"},
            set(),
            set(),
            set(),
        ),
        # Attention: queries and keys are the same size; heads and batch have no tile.
        (
            {"B": 3, "H": 5, "N": 1024},
            ("BLOCK_M", "BLOCK_N"),
            lambda v: math.ceil(1024 / v["BLOCK_M"]) * 15,
            {"BLOCK_M": "N", "BLOCK_N": "N"},
            {"BLOCK_N"},
            {"B", "H"},
            set(),
        ),
        # The same with a batch of one, which every block covers.
        (
            {"B": 1, "H": 5, "N": 1024},
            ("BLOCK_M", "BLOCK_N"),
            lambda v: math.ceil(1024 / v["BLOCK_M"]) * 5,
            {"BLOCK_M": "N", "BLOCK_N": "N"},
            {"BLOCK_N"},
            {"B", "H"},
            set(),
        ),
        # A row of a program, walked in blocks.
        (
            {"rows": 77, "cols": 4096},
            ("BLOCK_N",),
            lambda _: 77,
            {"BLOCK_N": "cols"},
            {"BLOCK_N"},
            {"rows"},
            set(),
        ),
        # Split-K multiplies the programs.
        (
            {"M": 1000, "K": 4096},
            ("BLOCK_M", "SPLIT_K"),
            lambda v: math.ceil(1000 / v["BLOCK_M"]) * v["SPLIT_K"],
            {"BLOCK_M": "M"},
            set(),
            set(),
            {"SPLIT_K"},
        ),
        # A fixed number of programs explains nothing: names alone count.
        ({"M": 1000}, ("BLOCK_M",), lambda _: 132, {"BLOCK_M": "M"}, {"BLOCK_M"}, set(), set()),
    ],
)
def test_a_layout_is_read_off_the_grid(
    sizes: Mapping[str, int],
    axes: tuple[str, ...],
    grid: Any,
    tiles: Any,
    loops: Any,
    programs: Any,
    splits: Any,
) -> None:
    """Programs at one shape say which value tiles which size; names decide where they do not."""
    values = ((16, 64, 256), (32, 128), (2, 8))[: len(axes)]
    configs = [Config(dict(zip(axes, one, strict=True))) for one in itertools.product(*values)]
    launches = [(config, grid(config.kwargs)) for config in configs]
    layout = Layout.of(sizes, axes, launches)
    assert layout == Layout(tiles, frozenset(loops), frozenset(programs), frozenset(splits))


def test_sizes_are_whole_numbers_above_zero() -> None:
    """Flags, floats, text and zeros are no sizes."""
    assert sizes_of({"M": 4, "causal": True, "scale": 0.5, "kind": "a", "Z": 0}) == {"M": 4}


def timed(*sizes: int, noise: float = 0.0) -> list[TimedShape]:
    """Tiles that fit a size are fastest; padding costs what it computes."""
    shapes = []
    for size in sizes:
        us = {}
        for place, config in enumerate(TILES):
            m, n = config.kwargs["BLOCK_M"], config.kwargs["BLOCK_N"]
            waves = math.ceil(math.ceil(size / m) * math.ceil(4096 / n) / 132)
            speed = (m * n) ** 0.8
            us[config] = 2 + waves * m * n / speed + noise * ((place * 7919 + size) % 13)
        shapes.append(TimedShape({"M": size, "N": 4096}, us))
    return shapes


def fitted(shapes: list[TimedShape]) -> ShapeModel | None:
    """A model on a device of 132 SMs."""

    def programs(config: Config) -> int:
        blocks = config.kwargs
        return math.ceil(96 / blocks["BLOCK_M"]) * math.ceil(4096 / blocks["BLOCK_N"])

    return ShapeModel.of(shapes, 132, {"M": 96, "N": 4096}, programs)


def test_it_picks_well_between_shapes() -> None:
    """At shapes between tuned ones a pick keeps nearly all of the speed."""
    model = fitted(timed(16, 64, 256, 1024, 4096, 16384))
    assert model is not None
    for size in (32, 128, 512, 2048, 8192):
        (truth,) = timed(size)
        pick = model.pick(truth.shape)
        assert pick is not None
        assert min(truth.us.values()) / truth.us[pick.config] > 0.9


def test_it_is_less_sure_of_other_code() -> None:
    """A size that 16 does not divide is wide where no tuned size was such."""
    model = fitted(timed(16, 64, 256, 1024, 4096, 16384))
    assert model is not None
    even, odd = model.pick({"M": 512, "N": 4096}), model.pick({"M": 513, "N": 4096})
    assert even is not None
    assert odd is not None
    assert odd.loss > even.loss
    assert odd.is_wide


def test_one_config_alone_is_not_sure() -> None:
    """Where one timed config is in the space, nothing says that it is near the best."""
    model = fitted(timed(16, 64, 256, 1024, 4096, 16384))
    assert model is not None
    pick = model.pick({"M": 512, "N": 4096}, lambda config: config == TILES[0])
    assert pick is not None
    assert pick.is_wide


def test_unchecked_picks_are_not_sure() -> None:
    """Where its picks for tuned shapes were not timed there, nothing confirms the model."""
    shapes = [
        replace(one, us=dict(itertools.islice(one.us.items(), place % 2, None, 2)))
        for place, one in enumerate(timed(16, 64, 256))
    ]
    model = fitted(shapes)
    assert model is not None
    assert model.left_out.count(None) > 0
    pick = model.pick({"M": 128, "N": 4096})
    assert pick is not None
    assert pick.is_wide


def test_too_little_to_fit() -> None:
    """Two shapes, or shapes of other sizes, make no model."""
    assert fitted(timed(16, 64)) is None
    strange = TimedShape({"M": 4, "Q": 1}, timed(16)[0].us)
    assert fitted([*timed(16, 64), strange]) is None


def test_values_of_every_kind() -> None:
    """Flags, words, missing values and huge sizes are values like others."""
    kinds = [
        Config({"BLOCK_M": 16, "FLAG": True, "KIND": "a"}, num_warps=4),
        Config({"BLOCK_M": 64, "FLAG": False, "KIND": "b"}, num_warps=4),
        Config({"BLOCK_M": 64}, num_warps=8, maxnreg=128),
    ]
    shapes = [
        TimedShape({"M": size}, {config: 1.0 + place for place, config in enumerate(kinds)})
        for size in (1, 1 << 30, 1 << 62)
    ]
    model = ShapeModel.of(shapes, 132, {"M": 1}, lambda _: 1)
    assert model is not None
    pick = model.pick({"M": 12345})
    assert pick is not None
    assert pick.config in kinds
    assert 0 <= pick.loss < 1
