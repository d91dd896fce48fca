"""Findings: each class on a kernel that shows it, and none on one that does not; the advice."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
import why_kernels as kernels
from why_kernels import copy_problem, kinds, product_problem, square_problem, tensor, tile, why

from asmtune.base.settings import Settings
from asmtune.compile.lower import Lowering
from asmtune.compile.pool import compile_one
from asmtune.core.config import Config
from asmtune.core.hardware.shipped import load_target
from asmtune.core.problem import Problem
from asmtune.core.records.artifacts import Artifact
from asmtune.core.records.verdicts import Verdict
from asmtune.predict.features.catalog import FEATURES
from asmtune.predict.score.roofline import changed_axes
from asmtune.predict.why.summary import Why
from asmtune.report.code import CodeReader
from asmtune.report.explain.text import why_lines


def blocks(first: int) -> list[Config]:
    """Configs of one BLOCK and of others, with two numbers of warps."""
    sizes = [first, *(size for size in (256, 1024, 4096) if size != first)]
    return [Config({"BLOCK": size}, num_warps=warps) for size in sizes for warps in (4, 8)]


def check_advice(reasons: Why, axes: frozenset[str], own: Config) -> None:
    """Hold the advice to axes of the space, to two changes a finding, and to a gain."""
    for finding in reasons.findings:
        assert len(finding.advice) <= 2
        for suggestion in finding.advice:
            verdict: Verdict = suggestion.verdict
            assert changed_axes(own, verdict.config) <= axes
            assert verdict.rank is not None


def test_a_strided_copy_is_uncoalesced(settings: Settings) -> None:
    """Bytes not used are told; the layout pays after some launches; no axis of another kernel."""
    reasons, axes = why(copy_problem(1 << 22, 8), blocks(1024), settings)
    assert kinds(reasons) == {"uncoalesced access"}
    (finding,) = reasons.findings
    assert "112 MiB of 128 MiB in all requests are not used" in finding.text
    check_advice(reasons, axes, blocks(1024)[0])
    (layout,) = reasons.layouts
    assert (layout.argument, layout.stride_bytes, layout.element_bytes) == ("x_ptr", 32, 4)
    assert layout.moved_bytes == (1 << 27) + (1 << 24)
    gain = layout.before_us - layout.after_us
    assert (layout.launches - 1) * gain < layout.cost_us <= layout.launches * gain
    assert f"{layout.launches} launches on the same data pay for" in str(layout)


def test_a_plain_copy_has_no_finding(settings: Settings) -> None:
    """Sequential accesses of a large array give neither a finding nor a layout."""
    reasons, _ = why(copy_problem(1 << 24, 1), blocks(1024)[:1], settings)
    assert reasons.findings == ()
    assert reasons.layouts == ()


@pytest.mark.slow(seconds=5)
def test_a_transpose_converts_what_it_writes(settings: Settings) -> None:
    """Its store is uncoalesced, and the layout's cost comes with each launch; blocks need none."""
    reasons, axes = why(square_problem(kernels.transpose, 4096), blocks(1024), settings)
    assert kinds(reasons) == {"uncoalesced access"}
    check_advice(reasons, axes, blocks(1024)[0])
    (layout,) = reasons.layouts
    assert layout.written
    assert "after each launch" in str(layout)
    config = Config({"BLOCK": 64}, num_warps=4)
    by_blocks, _ = why(square_problem(kernels.transpose_by_blocks, 4096), [config], settings)
    assert "uncoalesced access" not in kinds(by_blocks)


def test_gathered_elements_are_uncoalesced_and_rows_are_not(settings: Settings) -> None:
    """Single elements by an index waste sectors; rows by an index use them."""
    x, index = tensor(torch.float32, 1 << 24), tensor(torch.int32, 1 << 22)
    values = {"x_ptr": x, "index_ptr": index, "y_ptr": tensor(torch.float32, 1 << 22)}
    config = Config({"BLOCK": 1024}, num_warps=4)
    single = Problem(kernels.take, {**values, "n": 1 << 22}, (4096,))
    reasons, _ = why(single, [config], settings)
    assert kinds(reasons) == {"uncoalesced access"}
    assert reasons.layouts == ()
    rows = Problem(kernels.take_rows, {**values, "cols": 1024}, (4096,))
    assert kinds(why(rows, [config], settings)[0]) == set()


@pytest.mark.slow(seconds=8)
def test_few_stages(settings: Settings) -> None:
    """One stage waits, and more are advised; with four stages there is no such finding."""
    problem = product_problem(1024, 1024, 1024)
    space = [tile(128, 128, 64, 4, stages) for stages in (1, 2, 3, 4)]
    reasons, axes = why(problem, space, settings)
    assert kinds(reasons) == {"too few stages"}
    (finding,) = reasons.findings
    assert "num_stages=1" in finding.text
    check_advice(reasons, axes, space[0])
    first = finding.advice[0].verdict.config
    assert first.num_stages > 1
    assert changed_axes(space[0], first) == {"num_stages"}
    assert "too few stages" not in kinds(why(problem, space[::-1], settings)[0])


def test_few_stages_of_a_config_alone(settings: Settings) -> None:
    """Without other configs one stage of a pipelined loop is few, and nothing is advised."""
    reasons, _ = why(product_problem(1024, 1024, 1024), [tile(128, 128, 64, 4, 1)], settings)
    assert kinds(reasons) == {"too few stages"}
    assert reasons.findings[0].advice == ()


@pytest.mark.slow(seconds=9)
def test_a_spilling_softmax_presses_on_registers(settings: Settings) -> None:
    """A row of 64 Ki in one warp's registers spills, more warps are advised and do not spill."""
    problem = square_problem(kernels.softmax, 32768)
    space = [Config({"BLOCK": 32768}, num_warps=warps) for warps in (4, 16, 32)]
    reasons, axes = why(problem, space, settings)
    assert "register pressure" in kinds(reasons)
    (finding,) = (one for one in reasons.findings if one.kind == "register pressure")
    assert "words a thread are spilled" in finding.text
    check_advice(reasons, axes, space[0])
    assert finding.advice[0].verdict.config.num_warps > 4
    assert "register pressure" not in kinds(why(problem, space[::-1], settings)[0])


def test_a_program_more_than_there_are_sms(settings: Settings) -> None:
    """133 programs on 132 SMs have a tail, 132 have none."""
    space = [tile(128, 128, 64, 4, 3), tile(64, 128, 64, 4, 3)]
    reasons, axes = why(product_problem(133 * 128, 128, 1024), space, settings)
    (finding,) = (one for one in reasons.findings if one.kind == "tail")
    assert "133 programs on 132 SMs: 131 of them run 1 and 1 run 2" in finding.text
    check_advice(reasons, axes, space[0])
    even, _ = why(product_problem(132 * 128, 128, 1024), space[:1], settings)
    assert "tail" not in kinds(even)


@pytest.mark.slow(seconds=6)
def test_l2_misses_of_a_walk_along_columns(settings: Settings) -> None:
    """A product larger than L2, programs along M first, reads A again; a small one does not."""
    space = [tile(64, 64, 64, 4, 3), tile(128, 128, 64, 8, 3)]
    reasons, axes = why(product_problem(16384, 16384, 16384), space, settings)
    (finding,) = (one for one in reasons.findings if one.kind == "L2 misses")
    assert "1 GiB different bytes are read" in finding.text
    assert "L2 of 60 MiB" in finding.text
    check_advice(reasons, axes, space[0])
    assert "L2 misses" not in kinds(why(product_problem(1024, 1024, 1024), space, settings)[0])
    streamed, _ = why(copy_problem(1 << 26, 1), [Config({"BLOCK": 1024}, num_warps=4)], settings)
    assert "L2 misses" not in kinds(streamed)


def test_what_cannot_be_read_is_told(settings: Settings) -> None:
    """TTGIR that is damaged gives its reason in the place of patterns."""
    problem, config, machine = copy_problem(1 << 20, 1), blocks(1024)[0], load_target("H200")
    request = Lowering(problem, machine, 60).request(config)
    artifact = compile_one(request, settings)
    assert isinstance(artifact, Artifact)
    broken = replace(artifact, outputs={**artifact.outputs, "ttgir": "module {"})
    features = dict.fromkeys(FEATURES, 1.0)
    reasons = CodeReader(problem, machine).why(Verdict(config, True, features=features), broken)
    assert reasons is not None
    assert reasons.failure
    (line,) = why_lines(reasons, Verdict(config, True))
    assert line.plain.startswith("why it takes its time cannot be said: ")


@pytest.mark.slow(seconds=1)
@pytest.mark.parametrize(
    ("dtype", "column_major", "target", "words"),
    [
        (torch.float32, False, "H200", "copy into shared memory, 4 B a thread: 16 passes"),
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
    reasons, _ = why(problem, [tile(128, 128, 64, 4, 2)], settings, target)
    found = [one.text for one in reasons.findings if one.kind == "bank conflicts"]
    assert len(found) == bool(words)
    assert all(words in text for text in found)
