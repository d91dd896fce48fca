"""Benches on real GPUs: what a child is sent is what it launches."""

from __future__ import annotations

import pytest
import torch
import triton

from asmtune.core.hardware.model import Target
from asmtune.core.records.tuned import Measurement
from asmtune.measure.bench.base import Bench
from asmtune.measure.bench.child_bench import ChildBench
from asmtune.measure.bench.local import LocalBench
from asmtune.measure.checks.roles import CheckOptions
from asmtune.measure.timing.policy import TimingPolicy
from tests.gpu import argument_kernels, fault_kernels

BOTH = pytest.mark.parametrize("kind", [LocalBench, ChildBench])


@pytest.fixture(autouse=True)
def scratch() -> None:
    """Memory for launches in this process that ask for it, as a user sets it."""
    triton.set_allocator(
        lambda size, _alignment, _stream: torch.empty(size, dtype=torch.int8, device="cuda")
    )


def timed(bench: Bench, prepared: fault_kernels.Prepared) -> list[bool]:
    """Say if each entrant, the first as the default, got a timing."""
    default, *others = prepared.entrants
    outcomes = [bench.begin(default), *bench.trial(others)]
    assert all(isinstance(r, Measurement) for _, r in outcomes), outcomes
    return [isinstance(result, Measurement) for _, result in outcomes]


def test_all_kinds_of_arguments_reach_a_child(here: Target) -> None:
    """Tuples, None, misaligned views of one storage, functions and dtypes give what they should."""
    problem, configs = argument_kernels.problems()["mixed"]
    user_timer = problem.arguments
    x, offset = user_timer["pair"]
    expected = (2 * (x * user_timer["scale"] + offset + user_timer["odd_ptr"])).cpu()

    def reference(_: object) -> torch.Tensor:
        return expected.cuda()

    for kind in (LocalBench, ChildBench):
        checks = CheckOptions(reference=reference)
        prepared = fault_kernels.prepare(problem, configs, here, checks=checks)
        bench = kind(prepared.setup)
        assert timed(bench, prepared) == [True] * 3
        bench.close()
        assert prepared.is_whole()


@BOTH
@pytest.mark.parametrize("which", ["descriptors", "made on the device"])
def test_tensor_descriptors(which: str, kind: type[LocalBench | ChildBench], here: Target) -> None:
    """Made on the host, with a hook that sets their tiles, or on the device: all are timed."""
    if torch.cuda.get_device_capability() < (9, 0):
        pytest.skip("tensor descriptors need a GPU of compute capability 9.0")
    problem, configs = argument_kernels.problems()[which]
    tensors = {
        name: getattr(value, "base", value)
        for name, value in problem.arguments.items()
        if not isinstance(value, int)
    }
    before = {name: tensor.clone() for name, tensor in tensors.items()}
    doubled = next(iter(before.values())).cpu() * 2

    def reference(_: object) -> torch.Tensor:
        return doubled.cuda()

    checks = CheckOptions(reference=reference)
    prepared = fault_kernels.prepare(problem, configs, here, checks=checks)
    bench = kind(prepared.setup)
    assert timed(bench, prepared) == [True] * 3
    bench.close()
    for name, tensor in tensors.items():
        assert torch.equal(tensor, before[name])


@BOTH
def test_graph_mode(kind: type[LocalBench | ChildBench], here: Target) -> None:
    """Kernels of a few microseconds are timed in CUDA graphs, in place or not."""
    policy = TimingPolicy(mode="graph")
    for which in ("double", "in place"):
        problem = fault_kernels.problems(1 << 12)[which]
        configs = [fault_kernels.config(block=block) for block in (1024, 256)]
        prepared = fault_kernels.prepare(problem, configs, here, policy=policy)
        bench = kind(prepared.setup)
        assert timed(bench, prepared) == [True, True]
        bench.close()
        assert prepared.is_whole()
