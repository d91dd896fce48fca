"""Kernels whose outputs depend on the config are tuned to the end, on the host."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
import triton
import triton.language as tl

from asmtune.compile.load import Binary, LoadedLaunch
from asmtune.core.config import Config
from asmtune.core.problem import Problem
from asmtune.core.space.space import Space
from asmtune.store.trace.reader import read_trace
from asmtune.store.trace.run import run_files
from tests.tuning_support import HostMachine, resolved, workshop

N = 5000
LEAST = 128
BLOCKS = (LEAST, 256, 512, 1024)


@triton.jit
def backward(x_ptr, dx_ptr, partial_ptr, n, BLOCK: tl.constexpr, FLAW: tl.constexpr):
    """Scale, and store the sum of each block beside those of the others."""
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + at, mask=at < n, other=0.0)
    tl.store(dx_ptr + at, x * 2.0, mask=at < n)
    tl.store(partial_ptr + tl.program_id(0), tl.sum(x) + FLAW)


@triton.jit
def chunk_sum(x_ptr, sum_ptr, n, BLOCK: tl.constexpr, FLAW: tl.constexpr):
    """Add to what a hook has zeroed."""
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.atomic_add(sum_ptr, tl.sum(tl.load(x_ptr + at, mask=at < n, other=0.0)) + FLAW)


def grid(values: Mapping[str, Any]) -> tuple[int, ...]:
    return (triton.cdiv(N, values["BLOCK"]),)


def block_sums(values: Mapping[str, Any]) -> torch.Tensor:
    (count,) = grid(values)
    padded = torch.nn.functional.pad(values["x_ptr"], (0, count * values["BLOCK"] - N))
    return padded.reshape(count, -1).sum(1) + values["FLAW"]


def do_backward(values: Mapping[str, Any]) -> None:
    sums = block_sums(values)
    values["dx_ptr"].copy_(values["x_ptr"] * 2.0)
    values["partial_ptr"][: len(sums)] = sums


def do_chunk_sum(values: Mapping[str, Any]) -> None:
    values["sum_ptr"] += block_sums(values).sum()


class Machine(HostMachine):
    """Does what a kernel would do; wide blocks are fast."""

    def __init__(self, act: Callable[[Mapping[str, Any]], None]) -> None:
        super().__init__(lambda config: 1e4 / config.kwargs["BLOCK"])
        self.act = act

    def launch(
        self, binary: Binary, values: Mapping[str, Any], pre_hook: Callable[..., Any] | None
    ) -> LoadedLaunch:
        """Do what the kernel would do, after the config's hook."""
        launch = super().launch(binary, values, pre_hook)
        return LoadedLaunch(launch.prepare, lambda: self.act(values))


def tensors() -> dict[str, Any]:
    return {"x_ptr": torch.randn(N, generator=torch.Generator().manual_seed(3)), "n": N}


def notes_of(folder: Path) -> list[str]:
    (path,) = run_files(folder / "runs")
    return list(read_trace(path).notes)


def test_a_config_with_other_partial_sums_wins(tmp_path: Path) -> None:
    """The widest block wins though it writes fewer sums; one whose sums are wrong loses."""
    outputs = {"dx_ptr": torch.zeros(N), "partial_ptr": torch.zeros(triton.cdiv(N, LEAST))}
    made = Problem(backward, {**tensors(), **outputs}, grid, {"n": N})
    listed = [Config({"BLOCK": block, "FLAW": 0}) for block in BLOCKS]
    listed.append(Config({"BLOCK": 2048, "FLAW": 1}))
    result = resolved(workshop(tmp_path, Machine(do_backward)), Space.from_configs(listed), made)
    assert result.record.winner.kwargs["BLOCK"] == 1024
    failures = {config.kwargs["BLOCK"]: failure for config, failure in result.record.failures}
    assert list(failures) == [2048]
    assert "sums over the slots of partial_ptr differ" in failures[2048].detail
    expected = (
        "partial_ptr: workspace of each config (rows = programs along axis 0), compared by its sums"
    )
    assert notes_of(tmp_path).count(expected) == 1


@pytest.mark.parametrize("flawed", [False, True])
def test_each_configs_hook_runs_before_each_launch(tmp_path: Path, flawed: bool) -> None:
    """Sums that hooks zero are right whatever ran before; without its hook a config loses."""
    calls: list[int] = []
    starts: list[float] = []

    def zeroing(block: int) -> Callable[[Mapping[str, Any]], None]:
        def hook(values: Mapping[str, Any]) -> None:
            assert values["BLOCK"] == block
            calls.append(block)
            values["sum_ptr"].zero_()

        return hook

    def act(values: Mapping[str, Any]) -> None:
        starts.append(float(values["sum_ptr"]))
        do_chunk_sum(values)

    listed = [Config({"BLOCK": b, "FLAW": 0}, pre_hook=zeroing(b)) for b in BLOCKS]
    if flawed:
        listed[-1] = Config({"BLOCK": 1024, "FLAW": 0})
    total = torch.full((1,), 7.0)
    made = Problem(chunk_sum, {**tensors(), "sum_ptr": total}, grid, {"n": N})
    result = resolved(workshop(tmp_path, Machine(act)), Space.from_configs(listed), made)
    assert result.record.winner.kwargs["BLOCK"] == (512 if flawed else 1024)
    assert {config.kwargs["BLOCK"] for config, _ in result.record.failures} == (
        {1024} if flawed else set()
    )
    # The one without a hook found what was there when tuning began, once.
    assert [start for start in starts if start] == [7.0] * flawed
    assert len(calls) >= len(starts) - flawed
    assert total.item() == 7.0
