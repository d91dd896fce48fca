"""Configs that have no grid, which lose, and launches of no programs, which launch nothing."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import triton

from asmtune import asm_autotune
from asmtune.base.errors import InputError, ProblemError
from asmtune.core.space.space import Space
from asmtune.runtime.events import recording
from asmtune.runtime.options import ON_MISS, PruningWarning
from asmtune.store.database import Store
from tests.dispatch.host_gpu import EFFORT, HostGpu, configs, copy, grid
from tests.tuning_support import DEVICE

N = 1024
Decorator = Callable[..., Any]


def vectors(n: int = N) -> tuple[torch.Tensor, torch.Tensor, int]:
    """Numbers, a place for as many, and how many."""
    return torch.arange(float(n)), torch.zeros(n), n


def tuned(folder: Path) -> dict[int, str]:
    """The kinds of failures by block in the store's record."""
    with Store.open(folder / "store.sqlite") as store:
        (record,) = store.records(f"{copy.__module__}.copy", DEVICE)
    return {config.kwargs["BLOCK"]: failure.kind for config, failure in record.failures}


GRIDS: dict[str, Callable[[dict[str, Any]], Any]] = {
    "over a limit": lambda v: (1, 65536 if v["BLOCK"] == 32 else 1),
    "empty": lambda v: (0 if v["BLOCK"] == 32 else 8,),
    "raises": lambda v: (N // (v["BLOCK"] - 32),),
    "lacks a name": lambda v: (8 if v["BLOCK"] != 32 else v["BLOK"],),
    "of four axes": lambda v: (8,) * (4 if v["BLOCK"] == 32 else 1),
    "a fraction": lambda v: (2.5 if v["BLOCK"] == 32 else 8,),
    "no tuple": lambda v: None if v["BLOCK"] == 32 else (8,),
}


@pytest.mark.parametrize("blocks", [(32, 64, 128), (64, 32, 128)], ids=["default", "other"])
@pytest.mark.parametrize("case", GRIDS)
def test_a_config_without_a_grid_loses(
    gpu: HostGpu, tmp_path: Path, case: str, blocks: tuple[int, ...]
) -> None:
    """One config whose grid cannot be launched loses with that reason, the default or another."""
    kernel = asm_autotune(configs(*blocks), ["n"], skip_tuning_below_us=None, effort=EFFORT)(copy)
    x, out, n = vectors()
    kernel[GRIDS[case]](x, out, n)
    assert torch.equal(x, out)
    assert kernel.best_config.kwargs["BLOCK"] == 64
    assert set(gpu.seen) == {64, 128}
    assert tuned(tmp_path) == {32: "grid"}


@pytest.mark.parametrize("case", ["over a limit", "empty", "raises"])
@pytest.mark.parametrize("on_miss", ON_MISS[:-1])
def test_no_miss_chooses_a_default_without_a_grid(gpu: HostGpu, on_miss: Any, case: str) -> None:
    """However a config is chosen, one that can be launched takes the place of the default."""
    listed = configs(32, 64, 128)
    kernel = asm_autotune(listed, ["n"], effort=EFFORT, on_miss=on_miss)(copy)
    kernel[GRIDS[case]](*vectors())
    assert gpu.launched[-1]["BLOCK"] != 32


def test_an_error_where_no_config_is_left(autotune: Decorator, gpu: HostGpu) -> None:
    """The first reason is told, and how many fail alike; nothing is launched."""
    kernel = autotune(configs(32, 64, 128), ["n"])(copy)
    with pytest.raises(ProblemError, match=r"BLOCK=32 .*axis y has 70000 programs.* 3 fail by"):
        kernel[lambda _: (1, 70_000)](*vectors())
    assert not gpu.launched
    assert gpu.tuned == 0


def test_a_large_space_loses_its_configs_without_a_grid(gpu: HostGpu) -> None:
    """Where a part of a space is sketched, only configs that can be launched are tried."""
    axes = {"BLOCK": [32 << step for step in range(6)], "num_warps": [1, 2, 4, 8, 16]}
    axes |= {"num_stages": list(range(1, 9))}
    kernel = asm_autotune(space=Space(axes), key=["n"], skip_tuning_below_us=None, effort=EFFORT)(
        copy
    )
    kernel[lambda v: (1, 32_768 * 64 // v["BLOCK"])](*vectors())
    assert set(gpu.seen)
    assert min(gpu.seen) >= 64


def test_a_model_that_raises_at_a_config(autotune: Decorator, gpu: HostGpu) -> None:
    """A config at which the user's model raises is not tried, with a warning; at all, an error."""

    def model(**values: Any) -> float:
        return 1.0 / (values["BLOCK"] - lost)

    lost, pruned = 32, {"perf_model": model, "top_k": 2}
    kernel = autotune(configs(32, 64, 128, 256), ["n"], prune_configs_by=pruned)(copy)
    with pytest.warns(PruningWarning, match="failed at 1 of 4 configs, first at BLOCK=32 "):
        kernel[grid](*vectors())
    assert set(gpu.seen) == {128, 256}
    pruned["perf_model"] = lambda **_: 1 // 0
    kernel = autotune(configs(32, 64), ["n"], prune_configs_by={**pruned, "top_k": 1})(copy)
    with pytest.raises(InputError, match="failed at 2 of 2"):
        kernel[grid](*vectors())


EMPTY: dict[str, Any] = {
    "tuple": (0,),
    "list": [4, 0],
    "over a limit": (0, 70_000),
    "function": grid,
    "function of a list": lambda v: [v["n"], 1],
}


@pytest.mark.parametrize("form", EMPTY)
def test_no_programs_of_a_new_key(autotune: Decorator, gpu: HostGpu, form: str) -> None:
    """Nothing is tuned, chosen, compiled or launched; the key stays unknown, and is tuned later."""
    kernel = autotune(configs(32, 64), [])(copy)
    with recording(lambda *_: pytest.fail("recorded")):
        assert kernel[EMPTY[form]](*vectors(0)) is None
    assert (gpu.tuned, gpu.launched, dict(kernel.cache), kernel.best_config) == (0, [], {}, None)
    x, out, n = vectors()
    kernel[grid](x, out, n)
    assert gpu.tuned == 1
    assert torch.equal(x, out)


def test_no_programs_of_a_known_key(autotune: Decorator, gpu: HostGpu) -> None:
    """A step without rows between others tunes nothing, and leaves the key's config as it is."""
    kernel = autotune(configs(32, 64), [])(copy)
    for n in (N, 0, N):
        kernel[grid](*vectors(n))
    assert gpu.tuned == 1
    assert [launch["grid"] for launch in gpu.launched] == [(32,), (0,), (32,)]  # (0,) is Triton's


def test_no_programs_ask_no_function_that_prunes(gpu: HostGpu) -> None:
    """Constraints and functions that prune, which may divide by a size, are not asked about 0."""
    pruned = {"early_config_prune": lambda listed, named, **_: listed[: 8 // named["n"]]}
    kernel = asm_autotune(
        configs(32, 64), ["n"], skip_tuning_below_us=None, effort=EFFORT, prune_configs_by=pruned
    )(copy)
    assert kernel[grid](*vectors(0)) is None
    space = Space({"BLOCK": [32, 64]}).where("fits", lambda BLOCK, n: n >= BLOCK)
    kernel = asm_autotune(space=space, key=["n"], skip_tuning_below_us=None, effort=EFFORT)(copy)
    assert kernel[grid](*vectors(0)) is None


@pytest.mark.parametrize("after", [0, 6])
def test_a_rule_that_raises_loses_with_its_reason(gpu: HostGpu, tmp_path: Path, after: int) -> None:
    """Whenever in a tuning a rule of `@triton.heuristics` raises, its config alone is out."""
    calls: list[int] = []

    def rule(values: dict[str, Any]) -> int:
        calls.extend([1] * (values["BLOCK"] == 64))
        if len(calls) > after and values["BLOCK"] == 64:
            raise ValueError("no scale")
        return 1

    kernel = asm_autotune(configs(32, 64, 128), ["n"], skip_tuning_below_us=None, effort=EFFORT)(
        triton.heuristics({"scale": rule})(copy)
    )
    kernel[grid](*vectors())
    assert kernel.best_config.kwargs == {"BLOCK": 32}
    with Store.open(tmp_path / "store.sqlite") as store:
        (record,) = store.records(f"{copy.__module__}.copy", DEVICE)
    told = [(config.kwargs["BLOCK"], failure.detail) for config, failure in record.failures]
    assert [block for block, _ in told] == [64]
    assert "'scale' failed at BLOCK=64" in told[0][1]
