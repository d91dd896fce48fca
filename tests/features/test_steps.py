"""What each PTX instruction becomes as a step."""

from __future__ import annotations

import pytest

from asmtune.ir.asm.nvptx import OpClass
from asmtune.ir.asm.program import AsmFunction
from asmtune.ir.asm.ptx import parse_ptx
from asmtune.predict.features.chain import (
    COPY_LATENCY,
    LATENCY,
    Action,
    InstructionStep,
    steps_of,
)
from tests.asm.asm_dumps import fixture_listing, ptx_names


def program(*lines: str) -> AsmFunction:
    """A kernel of these instructions."""
    return parse_ptx(".version 8.7\n.entry k()\n{\n" + ";\n".join(lines) + ";\n}\n").entry


def steps(*lines: str) -> tuple[InstructionStep, ...]:
    """The steps of these instructions."""
    return steps_of(program(*lines).instructions, {})


@pytest.mark.parametrize(
    ("line", "action", "latency"),
    [
        ("add.f32 %f1, %f2, %f3", Action.COMPUTE, LATENCY[OpClass.FLOAT]),
        ("ex2.approx.f32 %f1, %f2", Action.COMPUTE, LATENCY[OpClass.SPECIAL]),
        ("mov.b32 %r1, %r2", Action.COMPUTE, 0.0),
        ("ld.global.b32 %r1, [%rd1]", Action.GLOBAL_LOAD, LATENCY[OpClass.GLOBAL]),
        ("st.global.b32 [%rd1], %r1", Action.GLOBAL_STORE, LATENCY[OpClass.GLOBAL]),
        ("ld.shared.b32 %r1, [%r2]", Action.SHARED, LATENCY[OpClass.SHARED]),
        ("st.shared.b32 [%r2], %r1", Action.SHARED, LATENCY[OpClass.SHARED]),
        ("atom.global.add.f32 %f1, [%rd1], %f2", Action.ATOMIC, LATENCY[OpClass.ATOMIC]),
        ("bar.sync 0", Action.BARRIER, 0.0),
        ("cp.async.cg.shared.global [%r1], [%rd1], 16", Action.COPY, COPY_LATENCY),
        ("cp.async.commit_group", Action.COPY_COMMIT, 0.0),
        ("cp.async.wait_group 2", Action.COPY_WAIT, 0.0),
        (
            "cp.async.bulk.tensor.2d.shared::cta.global.mbarrier::complete_tx::bytes"
            " [%r1], [%rd1, {%r2, %r3}], [%r4]",
            Action.BULK,
            COPY_LATENCY,
        ),
        (
            "cp.async.bulk.tensor.2d.global.shared::cta.bulk_group [%rd1, {%r2, %r3}], [%r1]",
            Action.COMPUTE,
            0.0,
        ),
        ("mbarrier.try_wait.parity.shared::cta.b64 %p1, [%r1], %r2", Action.BULK_WAIT, 0.0),
        ("mbarrier.init.shared::cta.b64 [%r1], 1", Action.COMPUTE, 0.0),
        ("wgmma.commit_group.sync.aligned", Action.PRODUCT_COMMIT, 0.0),
        ("wgmma.wait_group.sync.aligned 1", Action.PRODUCT_WAIT, 0.0),
        ("wgmma.fence.sync.aligned", Action.COMPUTE, 0.0),
    ],
)
def test_actions(line: str, action: Action, latency: float) -> None:
    """Each kind of instruction has its own effect and latency."""
    (made,) = steps(line)
    assert (made.action, made.latency) == (action, latency)


def test_products() -> None:
    """mma.sync gives its registers to what follows, wgmma runs beside it."""
    (mma,) = steps(
        "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32"
        " {%f1, %f2, %f3, %f4}, {%r1, %r2, %r3, %r4}, {%r5, %r6}, {%f5, %f6, %f7, %f8}"
    )
    assert (mma.action, list(mma.writes)) == (Action.MMA, ["%f1", "%f2", "%f3", "%f4"])
    (wgmma,) = steps(
        "wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16"
        " {%f1,%f2,%f3,%f4}, %rd1, %rd2, %p1, 1, 1, 0, 1"
    )
    assert wgmma.action is Action.PRODUCT


@pytest.mark.parametrize("still", [0, 1, 7])
def test_groups_that_may_stay_open(still: int) -> None:
    """The number of a wait_group is read, with copies and with products; wait_all has none."""
    found = steps(
        f"cp.async.wait_group {still}",
        f"wgmma.wait_group.sync.aligned {still}",
        "cp.async.wait_all",
    )
    assert [step.still for step in found] == [still, still, 0]


def test_what_no_one_waits_for() -> None:
    """Branches, fences and loads of parameters are no steps."""
    assert not steps(
        "ld.param.b64 %rd1, [p]", "fence.proxy.async.shared::cta", "@%p1 bra $L", "$L: ret"
    )


@pytest.mark.parametrize("name", ptx_names())
def test_recorded_listings(name: str) -> None:
    """Real code has a step for each instruction but those that no one waits for."""
    for kernel in fixture_listing(name).programs:
        made = steps_of(kernel.instructions, {})
        assert 0 < len(made) <= len(kernel.instructions)
        assert all(step.latency >= 0 and step.still >= 0 for step in made)
