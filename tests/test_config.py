"""`Config` against `triton.Config`, and what it promises beyond it."""

from __future__ import annotations

import itertools
import json
import os
import pickle
import subprocess
import sys
from typing import Any

import numpy as np
import pytest
import triton
import triton.language as tl
from hypothesis import given
from hypothesis import strategies as st

from asmtune.core.config import OPTION_AXES, OPTION_DEFAULTS, Config

NAMES = st.text("ABCDEFGH_", min_size=1, max_size=6)
VALUES = st.one_of(st.integers(), st.booleans(), st.none(), st.text(max_size=5))
COUNTS = st.integers(1, 64)
WARPS, CTAS = st.sampled_from((1, 2, 4, 8, 16, 32)), st.sampled_from((1, 2, 4, 8, 16))


@st.composite
def configs(draw: st.DrawFn) -> Config:
    """Any config without hooks."""
    kwargs = draw(st.dictionaries(NAMES, VALUES, max_size=5))
    maxnreg = draw(st.none() | COUNTS)
    return Config(kwargs, draw(WARPS), draw(COUNTS), draw(CTAS), maxnreg)


def same_in_triton(config: Config) -> triton.Config:
    """The `triton.Config` of the same values."""
    return triton.Config(
        dict(config.kwargs),
        num_warps=config.num_warps,
        num_stages=config.num_stages,
        num_ctas=config.num_ctas,
        maxnreg=config.maxnreg,
        pre_hook=config.pre_hook,
        ir_override=config.ir_override,
    )


@given(st.dictionaries(NAMES, VALUES, min_size=1, max_size=5), st.randoms())
def test_order_of_keywords_does_not_matter(kwargs: dict[str, Any], random: Any) -> None:
    """Configs of the same values are equal and hash alike, in whatever order they are given."""
    items = list(kwargs.items())
    random.shuffle(items)
    one, two = Config(kwargs, num_warps=8), Config(dict(items), num_warps=8)
    assert one == two
    assert hash(one) == hash(two)


def _hook(arguments: dict[str, Any]) -> None:
    """A hook to compare by."""


DISTINCT = (
    Config({"A": 1}),
    Config({"A": 2}),
    Config({"B": 1}),
    Config({"A": 1, "B": 1}),
    Config({"A": 1}, num_warps=8),
    Config({"A": 1}, num_stages=2),
    Config({"A": 1}, num_ctas=2),
    Config({"A": 1}, maxnreg=64),
    Config({"A": 1}, pre_hook=_hook),
    Config({"A": 1}, ir_override="edited.ptx"),
)


def test_every_field_tells_configs_apart() -> None:
    """A difference in any one field makes configs unequal, and ten of them ten keys."""
    for one, two in itertools.combinations(DISTINCT, 2):
        assert one != two, (one, two)
    assert len(set(DISTINCT)) == len(DISTINCT)
    assert DISTINCT[0] != "A=1 num_warps=4 num_stages=3"


def test_attributes_are_those_of_triton() -> None:
    """`vars`, which Triton's autotuner writes to disk, holds what `triton.Config` holds."""
    for config in DISTINCT:
        assert hash(config) is not None
        assert vars(config) == vars(same_in_triton(config))
        assert config.all_kwargs() == same_in_triton(config).all_kwargs()


def test_defaults_are_those_of_triton() -> None:
    """Every option has Triton's own default."""
    theirs = triton.Config({})
    assert {name: getattr(theirs, name) for name in OPTION_AXES} == OPTION_DEFAULTS
    assert Config({}).all_kwargs() == theirs.all_kwargs()


@given(configs())
def test_flat_mapping_round_trip(config: Config) -> None:
    """`from_dict` gives back the config whose `to_dict` it takes."""
    again = Config.from_dict(config.to_dict())
    assert again == config
    assert hash(again) == hash(config)
    assert again.all_kwargs() == config.all_kwargs()
    assert again.pre_hook is None
    assert again.ir_override is None


def test_numbers_of_numpy_are_stored_as_numbers() -> None:
    """A store has no text in their place, so that a file of configs launches as the config does."""
    values = Config({"BLOCK": np.int64(64), "SCALE": np.float32(0.5), "EVEN": True}).to_dict()
    assert json.dumps({name: values[name] for name in ("BLOCK", "SCALE", "EVEN")}) == (
        '{"BLOCK": 64, "SCALE": 0.5, "EVEN": true}'
    )


def test_text_names_every_value() -> None:
    """The text of a config is its flat mapping, in the order given."""
    assert str(Config({"B": 64, "A": 1}, maxnreg=96)) == (
        "B=64 A=1 num_warps=4 num_stages=3 maxnreg=96"
    )
    assert repr(Config({"B": 64})) == "Config(B=64 num_warps=4 num_stages=3)"


def test_of_takes_what_means_a_config() -> None:
    """A config stays the same object; a `triton.Config` and a mapping become equal ones."""
    config = Config({"B": 64}, 8, 2, 2, 96, _hook, "edited.ptx")
    assert Config.of(config) is config
    assert Config.of(same_in_triton(config)) == config
    assert Config.of({"B": 64, "num_warps": 8}) == Config({"B": 64}, num_warps=8)


@pytest.mark.parametrize(
    "theirs",
    [
        triton.Config({"BLOCK": 64, "num_stages": 4, "num_warps": 8}),
        triton.Config({"BLOCK": 64, "maxnreg": 128, "num_ctas": 2}, num_stages=4),
    ],
)
def test_options_among_the_constexprs(theirs: triton.Config) -> None:
    """An option that a `triton.Config` has among its constexprs is what Triton launches with."""
    before = dict(theirs.kwargs)
    assert Config.of(theirs).all_kwargs() == theirs.all_kwargs()
    assert theirs.kwargs == before


def test_hash_is_not_carried_between_processes() -> None:
    """A pickled config, its hash already taken, is found in another process's table."""
    config = Config({"BLOCK": 64, "ACT": "relu"}, num_warps=8, maxnreg=128)
    assert hash(config) == hash(pickle.loads(pickle.dumps(config)))
    reader = (
        "import pickle, sys\n"
        "from asmtune.core.config import Config\n"
        "config = pickle.load(sys.stdin.buffer)\n"
        "same = Config({'ACT': 'relu', 'BLOCK': 64}, num_warps=8, maxnreg=128)\n"
        "assert config == same and config in {same}"
    )
    for seed in ("1", "2"):
        subprocess.run(
            [sys.executable, "-c", reader],
            input=pickle.dumps(config),
            env={**os.environ, "PYTHONHASHSEED": seed},
            check=True,
        )


@triton.jit
def touch(x_ptr, n, BLOCK: tl.constexpr):
    """Stand for something to tune."""


def test_stands_in_for_triton_config(monkeypatch: pytest.MonkeyPatch) -> None:
    """`triton.autotune` times our configs, picks the fastest and launches with its keywords."""
    launches: list[dict[str, Any]] = []
    hooked: list[dict[str, Any]] = []
    monkeypatch.setattr(touch, "run", lambda *_, **keywords: launches.append(keywords))
    choices = [
        Config({"BLOCK": 64}, num_warps=2),
        Config({"BLOCK": 128}, num_warps=8, maxnreg=96, pre_hook=hooked.append),
    ]

    def bench(call: Any, quantiles: Any) -> list[float]:
        call()
        return [1.0 / launches[-1]["BLOCK"]] * 3

    tuned = triton.autotune(choices, key=["n"], do_bench=bench)(touch)
    tuned[(1,)](None, 100)
    assert len(launches) == len(choices) + 1
    assert tuned.best_config is choices[1]
    assert launches[-1].items() >= choices[1].all_kwargs().items()
    assert hooked[-1]["maxnreg"] == 96
