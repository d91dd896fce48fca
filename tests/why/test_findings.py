"""Findings: each class on a kernel that shows it, and none on one that does not."""

from __future__ import annotations

import pytest
import torch
import why_kernels as kernels
from why_kernels import copy_problem, kinds, product_problem, square_problem, tile, why

from asmtune.base.settings import Settings
from asmtune.core.config import Config
from asmtune.core.hardware.shipped import load_target

BLOCK = Config({"BLOCK": 1024}, num_warps=4)


def test_a_strided_copy_is_uncoalesced(settings: Settings) -> None:
    """The bytes that are not used are counted."""
    reasons = why(copy_problem(1 << 22, 8), [BLOCK], settings)
    assert kinds(reasons) == {"uncoalesced access"}
    (finding,) = reasons.findings
    assert "112 MiB of 128 MiB in all requests are not used" in finding.text


def test_a_plain_copy_has_no_finding(settings: Settings) -> None:
    """Sequential accesses of a large array give no finding."""
    reasons = why(copy_problem(1 << 24, 1), [BLOCK], settings)
    assert reasons.findings == ()


@pytest.mark.slow(seconds=8)
def test_few_stages(settings: Settings) -> None:
    """One stage waits; with four stages there is no such finding."""
    problem = product_problem(1024, 1024, 1024)
    space = [tile(128, 128, 64, 4, stages) for stages in (1, 2, 3, 4)]
    reasons = why(problem, space, settings)
    assert kinds(reasons) == {"too few stages"}
    (finding,) = reasons.findings
    assert "num_stages=1" in finding.text
    assert "too few stages" not in kinds(why(problem, space[::-1], settings))


@pytest.mark.slow(seconds=9)
def test_a_spilling_softmax_presses_on_registers(settings: Settings) -> None:
    """A row of 32 Ki in 4 warps' registers spills, in those of 32 it does not."""
    problem = square_problem(kernels.softmax, 32768)
    space = [Config({"BLOCK": 32768}, num_warps=warps) for warps in (4, 16, 32)]
    reasons = why(problem, space, settings)
    assert "register pressure" in kinds(reasons)
    (finding,) = (one for one in reasons.findings if one.kind == "register pressure")
    assert "words a thread are spilled" in finding.text
    assert "register pressure" not in kinds(why(problem, space[::-1], settings))


def test_a_program_more_than_there_are_sms(settings: Settings) -> None:
    """133 programs on 132 SMs have a tail, 132 have none."""
    space = [tile(128, 128, 64, 4, 3), tile(64, 128, 64, 4, 3)]
    reasons = why(product_problem(133 * 128, 128, 1024), space, settings)
    (finding,) = (one for one in reasons.findings if one.kind == "tail")
    assert "133 programs on 132 SMs: 131 of them run 1 and 1 run 2" in finding.text
    even = why(product_problem(132 * 128, 128, 1024), space[:1], settings)
    assert "tail" not in kinds(even)


@pytest.mark.slow(seconds=1)
@pytest.mark.parametrize(
    ("dtype", "column_major", "target", "words"),
    [
        (torch.float32, False, "H200", "copy into shared memory: 16 times the passes"),
        (torch.float32, True, "H200", ""),
        (torch.float16, False, "H200", ""),
        (torch.float16, False, "A100", ""),
        (torch.float32, False, "A100", ""),
    ],
)
def test_bank_conflicts_of_a_transposed_operand(
    dtype: torch.dtype, column_major: bool, target: str, words: str, settings: Settings
) -> None:
    """The product of tf32 wants B along K, so that its rows are copied across the banks."""
    problem = product_problem(1024, 1024, 1024, dtype, column_major=column_major)
    reasons = why(problem, [tile(128, 128, 64, 4, 2)], settings, target)
    found = [one.text for one in reasons.findings if one.kind == "bank conflicts"]
    assert len(found) == bool(words)
    assert all(words in text for text in found)
    # The line copies tiles of 64 x 128 of both operands, in 16 steps and one ahead: 128 bytes a
    # clock, and 15 passes more, by 64 programs on 132 SMs.
    cycles = 15 * 2 * 17 * 64 * 128 * 4 / 128 * 64 / 132
    assert all(f"{cycles / load_target(target).clock_hz * 1e6:.1f} of " in text for text in found)
