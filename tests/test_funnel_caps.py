"""Derived caps: where they come from, what bounds them, and what recordings say of them."""

from __future__ import annotations

import gzip
import json
import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from asmtune.base.json_codec import to_json
from asmtune.base.settings import Settings
from asmtune.compile.artifacts import ArtifactCache
from asmtune.core.config import Config
from asmtune.core.hardware.model import Target
from asmtune.core.hardware.shipped import load_target
from asmtune.core.kernel_module import load_kernel_module
from asmtune.core.occupancy import occupancy
from asmtune.core.problem import Problem
from asmtune.core.records.artifacts import Artifact
from asmtune.core.records.verdicts import Features
from asmtune.core.space.space import Space
from asmtune.predict.prune.caps import (
    BEST_SHARE,
    LEAST_SHARE,
    MOST,
    CapSource,
    accumulator_registers,
    caps_of,
    derived_caps,
)
from asmtune.predict.prune.flow import Funnel
from asmtune.predict.score.scorer import Scorer
from asmtune.predict.score.scorers import make_scorer
from tests.sample_kernels import product_problem

ORACLE = Path(__file__).parents[2] / "shared" / "oracle"
TILE = {"BLOCK_M": (64,), "BLOCK_N": (64,), "BLOCK_K": (32,), "num_stages": (2,)}
WIDE = Config({"BLOCK_M": 64, "BLOCK_N": 128, "BLOCK_K": 32}, num_warps=2, num_stages=2)


@pytest.fixture
def funnel(target: Target, settings: Settings) -> Funnel:
    """A funnel that keeps all, for an H200."""
    return Funnel(target, make_scorer("roofline"), settings)


def many_programs() -> Problem:
    """A product of 4,096 programs: more than any GPU holds at once."""
    return replace(product_problem(), grid=(64, 64))


def features_of(warps: int, registers: int, shared: int, programs: int, target: Target) -> Features:
    """Give the features that `caps_of` reads of a config."""
    found = occupancy(target, warps, registers, shared)
    return Features(
        {
            "num_warps": warps,
            "regs_per_thread": registers,
            "programs": programs,
            "programs_per_sm": found.programs_per_sm,
            "programs_per_sm_by_shared": found.limit_shared,
        }
    )


@given(
    st.sampled_from(("A100", "H200", "B200", "RTX4090")),
    st.sampled_from((1, 2, 4, 8, 16)),
    st.integers(16, 255),
    st.integers(0, 99_000),
)
def test_each_cap_makes_room(name: str, warps: int, registers: int, shared: int) -> None:
    """With a cap as many programs fit as it says, more than without; 8 registers more fit fewer."""
    machine = load_target(name)
    if occupancy(machine, warps, registers, shared).programs_per_sm == 0:
        return
    before = occupancy(machine, warps, registers, shared).programs_per_sm
    caps = caps_of(features_of(warps, registers, shared, 1 << 20, machine), machine)
    assert list(caps) == sorted(caps, reverse=True)
    for cap, programs in caps.items():
        assert LEAST_SHARE * registers <= cap < registers
        assert occupancy(machine, warps, cap, shared).programs_per_sm == programs > before
        assert occupancy(machine, warps, min(cap + 8, 255), shared).programs_per_sm < programs
    if caps:
        assert occupancy(machine, warps, registers, shared).limiter == "registers"


@pytest.mark.parametrize(
    ("warps", "registers", "shared", "programs"),
    [
        (4, 168, 100_000, 1 << 20),  # shared memory allows no third
        (4, 168, 0, 3 * 132),  # the launch fills the machine once
        (1, 32, 0, 1 << 20),  # every block is in use
    ],
)
def test_no_room_no_caps(
    warps: int, registers: int, shared: int, programs: int, target: Target
) -> None:
    """Nothing is derived where another resource, or the launch, has no further program."""
    assert caps_of(features_of(warps, registers, shared, programs, target), target) == {}


def test_caps_of_a_product(funnel: Funnel) -> None:
    """Caps are compiled, ranked and explained beside the space's own configs, and keep its hook."""

    def hook(values: dict[str, Any]) -> None:
        """Do nothing."""

    listed = Config({**WIDE.kwargs}, num_warps=2, num_stages=2, pre_hook=hook)
    report = funnel.prune(many_programs(), Space.from_configs([listed]))
    plain, capped = sorted(report.verdicts, key=lambda v: v.config.maxnreg or 0)
    assert plain.config == listed
    assert capped.config == listed.with_cap(168)
    assert capped.config.pre_hook is hook
    assert plain.features is not None
    assert capped.features is not None
    assert (plain.features["programs_per_sm"], capped.features["programs_per_sm"]) == (4, 6)
    assert capped.features["regs_per_thread"] == 168
    assert {plain.rank, capped.rank} == {1, 2}
    used = plain.features["regs_per_thread"]
    assert capped.reasons[-1].text == (
        "maxnreg 168 makes room for 6 programs on an SM; "
        f"without it {used:.0f} registers a thread leave room for 4"
    )
    assert "one more program fits on an SM: 1; caps=False" in report.notes[0]
    assert {"derived_cap"} == {
        reason["rule"] for v in to_json(report)["verdicts"] for reason in v["reasons"][-1:]
    } - {"spills"}


def test_never_below_the_accumulators(funnel: Funnel) -> None:
    """Of the caps by occupancy only those that hold a product's accumulators are left."""
    config = Config({"BLOCK_M": 64, "BLOCK_N": 64, "BLOCK_K": 32}, num_warps=2, num_stages=2)
    (verdict,) = funnel.judge(many_programs(), [config])
    cache = ArtifactCache(funnel.settings.artifacts_dir, funnel.settings.artifacts_bytes)
    artifact = cache.get(verdict.artifact or "")
    assert isinstance(artifact, Artifact)
    needed = accumulator_registers(artifact)
    assert needed == 64 * 64 // 64 + 26
    assert verdict.features is not None
    by_occupancy = caps_of(verdict.features, funnel.target)
    assert min(by_occupancy) < needed < max(by_occupancy)
    derived = derived_caps([verdict], CapSource(funnel.target, funnel.scorer, cache))
    assert [c.maxnreg for c in derived] == [cap for cap in by_occupancy if cap >= needed]
    edited = replace(verdict, config=config.with_override("edited.ptx"))
    # A file's registers are what its text says: a cap beside it would do nothing.
    assert derived_caps([edited], CapSource(funnel.target, funnel.scorer, cache)) == {}


@pytest.mark.parametrize(
    ("space", "caps"),
    [
        (Space({**TILE, "num_warps": (2,), "maxnreg": (None,)}), True),
        (Space({**TILE, "num_warps": (2,), "maxnreg": (None, 200)}), True),
        (Space.from_configs([WIDE, WIDE.with_cap(200)]), True),
        (Space.from_configs([WIDE]), False),
    ],
    ids=["axis without caps", "axis", "list", "off"],
)
def test_the_users_caps_are_all(funnel: Funnel, space: Space, caps: bool) -> None:
    """Where the user names `maxnreg`, or wants none, the configs are as he wrote them."""
    report = replace(funnel, caps=caps).prune(many_programs(), space)
    assert {v.config for v in report.verdicts} == set(space.configs())
    assert not any("maxnreg" in note for note in report.notes)


def test_the_best_quarter_and_a_bound(funnel: Funnel) -> None:
    """Only caps of the best quarter are compiled, and no more than the bound."""
    (verdict,) = funnel.judge(many_programs(), [WIDE])
    cache = ArtifactCache(funnel.settings.artifacts_dir, funnel.settings.artifacts_bytes)

    class InOrder(Scorer):
        """Ranks as they come."""

        name = "in order"

        def score(self, candidates: Sequence[Any], draw: int = 0) -> list[float]:  # noqa: ARG002
            """Falls from one to the next."""
            return [-float(place) for place in range(len(candidates))]

    source = CapSource(funnel.target, InOrder(), cache)
    for count in (1, 4, 10, 40, 8 * MOST):
        configs = [Config({**WIDE.kwargs, "GROUP": i}, num_warps=2) for i in range(count)]
        derived = derived_caps([replace(verdict, config=config) for config in configs], source)
        best = configs[: min(math.ceil(count * BEST_SHARE), MOST)]
        assert list(derived) == [config.with_cap(168) for config in best]


@pytest.fixture(scope="module")
def tasks() -> list[dict[str, Any]]:
    """The recorded tasks; skipped where there are none."""
    path = ORACLE / "h200.json.gz"
    if not path.is_file():
        pytest.skip(f"no recorded timings at {path}")
    return list(json.loads(gzip.decompress(path.read_bytes()))["tasks"])


def test_bounds_leave_out_no_good_cap(tasks: list[dict[str, Any]], target: Target) -> None:
    """No recorded cap of this kind that the bounds leave out made a config one of the best.

    One of the best: within 5% of its task's best, and 3% faster than the same without a cap.
    """
    inside = outside = faster_inside = 0
    for task in tasks:
        best = min(row["ms"] for row in task["rows"] if "ms" in row)
        for plain, capped, caps in _pairs(task, target):
            gains = capped["ms"] * 1.03 < plain["ms"]
            if capped["config"]["maxnreg"] in caps:
                inside += 1
                faster_inside += gains
            else:
                outside += 1
                assert not (gains and capped["ms"] * 0.95 < best), capped
    assert inside > 500
    assert outside > 500
    assert faster_inside > inside / 4


def _pairs(task: dict[str, Any], target: Target) -> list[tuple[Any, Any, dict[int, int]]]:
    """Recorded configs without a cap, the same with one that makes room, and the caps derived."""
    module = load_kernel_module(str(ORACLE / "kernels" / f"{task['kernel']}.py"))
    problem = module.problem(task["shape"], module.dtypes[0], "meta")
    grid: Callable[[Config], int] = lambda config: math.prod(problem.programs(config))  # noqa: E731
    rows = {Config.from_dict(row["config"]): row for row in task["rows"] if "ms" in row}
    found = []
    for config, capped in rows.items():
        plain = rows.get(config.with_cap(None))
        if config.maxnreg is None or plain is None or config.maxnreg >= plain["regs"]:
            continue
        warps, shared = config.num_warps, plain["shared"]
        with_cap = occupancy(target, warps, config.maxnreg, shared).programs_per_sm
        if with_cap > occupancy(target, warps, plain["regs"], shared).programs_per_sm:
            features = features_of(warps, plain["regs"], shared, grid(config), target)
            found.append((plain, capped, caps_of(features, target)))
    return found
