"""What configs share is exactly what they would have got alone."""

from __future__ import annotations

from typing import Any

import pytest

from asmtune.base.settings import Settings
from asmtune.compile.lower import Lowering, LowerRequest
from asmtune.compile.pool import Hooks, compile_configs, families
from asmtune.compile.sandbox import Sandbox
from asmtune.core.config import Config
from asmtune.core.hardware.model import Target
from asmtune.core.problem import Problem
from asmtune.core.records.artifacts import Artifact, Failure
from tests.compile.making import accepted, compiled_in
from tests.compile.readings import whole
from tests.sample_kernels import (
    asks_for_threads,
    asks_for_warps,
    one_pointer,
    product_problem,
    row_sum_problem,
    scale_problem,
)

TILE = {"BLOCK_M": 64, "BLOCK_N": 64, "BLOCK_K": 32}


def requests(problem: Problem, configs: list[Config], machine: Target) -> list[LowerRequest]:
    """Requests that the front end is to accept."""
    lowering = Lowering(problem, machine, 30)
    return [accepted(lowering, config) for config in configs]


FAMILIES: dict[str, tuple[Problem, list[Config]]] = {
    "stages without a dot": (
        row_sum_problem(),
        [
            Config({"BLOCK": 512}, num_stages=n, maxnreg=cap)
            for cap in (64, None)
            for n in (1, 2, 5)
        ],
    ),
    "neither": (
        scale_problem(),
        [Config({"BLOCK": 512}, num_stages=n, maxnreg=40) for n in (1, 3)],
    ),
    "stages of a product": (
        product_problem(),
        [Config(TILE, num_stages=n, maxnreg=cap) for n in (1, 2, 4) for cap in (96, None)],
    ),
}


def results(artifact: Artifact | Failure) -> Any:
    """All of an artifact but how long it took."""
    assert isinstance(artifact, Artifact), artifact
    return artifact.outputs, artifact.cubin, artifact.metadata, artifact.entry


@pytest.mark.slow
@pytest.mark.parametrize("family", FAMILIES)
def test_sharing_changes_nothing(family: str, target: Target, shared_sandbox: Sandbox) -> None:
    """Every config of a family gets the PTX, cubin and metadata that it gets alone."""
    problem, configs = FAMILIES[family]
    made = requests(problem, configs, target)
    together = [results(compiled_in(shared_sandbox, request, 60)) for request in made]
    distinct = {request.digest: place for place, request in enumerate(made)}
    for place in sorted(distinct.values())[1:]:
        # A child that has compiled nothing else shares nothing.
        alone = Sandbox(1 << 34)
        try:
            assert results(compiled_in(alone, made[place], 60)) == together[place]
        finally:
            alone.close()


CAPPED = ((1, None), (3, None), (3, 64))
"""Stages and caps of three configs."""


@pytest.mark.slow
def test_sharing_skips_llvm(sandbox: Sandbox, target: Target) -> None:
    """The second config of a family spends no time in LLVM, and one of another cap does again."""
    configs = [Config({"BLOCK": 512}, num_stages=n, maxnreg=cap) for n, cap in CAPPED]
    made = [compiled_in(sandbox, r, 60) for r in requests(row_sum_problem(), configs, target)]
    stages = [set(artifact.seconds) for artifact in made if isinstance(artifact, Artifact)]
    assert stages[0] == {"ttir", "ttgir", "llir", "ptx", "cubin"} == stages[2]
    assert stages[1] == {"ttir", "ttgir"}


def test_one_front_end_for_all_options(target: Target, monkeypatch: pytest.MonkeyPatch) -> None:
    """Warps, stages and caps share one TTIR of a tile; another tile has its own."""
    lowering = Lowering(product_problem(), target, 30)
    calls = _count_front_ends(lowering, monkeypatch)
    texts = {
        lowering.request(Config(tile, num_warps=w, num_stages=s, maxnreg=r)).ttir  # type: ignore[union-attr]
        for tile in (TILE, {**TILE, "BLOCK_K": 64})
        for w in (4, 8)
        for s in (2, 3)
        for r in (None, 128)
    }
    assert len(texts) == 2
    assert len(calls) == 2


def _count_front_ends(lowering: Lowering, monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    calls: list[Any] = []
    real = lowering.toolchain.front_end

    def counted(specialised: Any) -> Any:
        calls.append(specialised)
        return real(specialised)

    monkeypatch.setattr(lowering.toolchain, "front_end", counted)
    return calls


@pytest.mark.parametrize(("kernel", "factor"), [(asks_for_warps, 1), (asks_for_threads, 32)])
def test_an_option_that_is_read(
    kernel: Any, factor: int, target: Target, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A kernel that asks for its warps gets TTIR of its own for each number, stages shared."""
    lowering = Lowering(one_pointer(kernel), target, 30)
    calls = _count_front_ends(lowering, monkeypatch)
    for warps in (1, 4, 8):
        for stages in (1, 2):
            request = accepted(lowering, Config({}, num_warps=warps, num_stages=stages))
            assert f"dense<{warps * factor}>" in request.ttir or f" {warps * factor} : i32" in (
                request.ttir
            )
    assert len(calls) == 3


def test_pool_yields_every_position(target: Target, settings: Settings) -> None:
    """Each config comes back once: duplicates, refused, known and not admitted ones included."""
    config, known = Config({"BLOCK": 256}), Config({"BLOCK": 128})
    configs = [config, Config({"BLOCK": 256}, num_warps=3), config, Config({"BLOCK": 200}), known]
    configs.append(Config({"BLOCK": 64}))
    lowering = Lowering(scale_problem(), target, 30)
    marker, no = Failure("ptx", "crash", "known"), Failure("rules", "mine", "not today")
    digest = accepted(lowering, known).digest
    hooks: Hooks[Artifact] = Hooks(
        whole, lambda config, _: no if config.kwargs["BLOCK"] == 64 else None, {digest: marker}
    )
    found = dict(compile_configs(lowering, configs, hooks, settings))
    assert sorted(found) == [0, 1, 2, 3, 4, 5]
    assert [isinstance(found[place], Failure) for place in range(4)] == [False, True, False, True]
    assert found[0] == found[2]
    assert found[1].kind == "options"  # type: ignore[union-attr]
    assert (found[4], found[5]) == (marker, no)
    assert set(hooks.known) == {digest, accepted(lowering, config).digest}


@pytest.mark.parametrize(
    ("problem", "tile", "sizes"),
    [(scale_problem(), {"BLOCK": 128}, [3]), (product_problem(), TILE, [1, 2])],
)
def test_stages_part_families_of_products(
    problem: Problem, tile: dict[str, int], sizes: list[int], target: Target
) -> None:
    """Without a product `num_stages` changes nothing, so that all stages share a compile."""
    configs = [Config(tile, num_stages=stages) for stages in (2, 3, 3)]
    lower = Lowering(problem, target, 60.0).request
    assert sorted(len(family) for family in families(configs, lower)) == sizes
