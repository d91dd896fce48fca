"""The chain of latencies: what waits for what, and what a loop's trip takes in the end."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from asmtune.predict.features.chain import (
    BARRIER_LATENCY,
    Action,
    InstructionStep,
    chain_cycles,
)

LATE = 1000.0


def step(
    action: Action, reads: str = "", writes: str = "", latency: float = 0.0, busy: float = 0.0
) -> InstructionStep:
    """A step; registers are separated by blanks."""
    return InstructionStep(action, tuple(reads.split()), tuple(writes.split()), latency, busy)


def wait(action: Action, still: int) -> InstructionStep:
    """A wait for all groups but the newest `still`."""
    return InstructionStep(action, (), (), 0.0, 0.0, still)


def once(*steps: InstructionStep, warps: int = 4, stages: int = 1) -> float:
    """Cycles of straight code until its last instruction starts."""
    return chain_cycles(steps, warps, stages, repeats=False)


def trip(*steps: InstructionStep, warps: int = 4, stages: int = 1) -> float:
    """Cycles of a late trip of a loop."""
    return chain_cycles(steps, warps, stages, repeats=True)


def load(to: str, address: str = "p", busy: float = 0.0) -> InstructionStep:
    """A load from global memory."""
    return step(Action.GLOBAL_LOAD, address, to, LATE, busy)


def use(name: str) -> InstructionStep:
    """An instruction that needs a register."""
    return step(Action.COMPUTE, name, f"{name}_used", 4.0)


def test_dependent_chain_adds_up() -> None:
    """Each instruction that needs the one before starts that one's latency later."""
    chain = [step(Action.COMPUTE, f"r{i}", f"r{i + 1}", 5.0) for i in range(10)]
    assert once(*chain) == 9 * 5.0
    # In a loop the first of a trip has nothing to wait for but the last of the trip before.
    assert trip(*chain) == 9 * 5.0
    assert trip(*chain, step(Action.COMPUTE, "r10", "r0", 5.0)) == 11 * 5.0


@pytest.mark.parametrize("warps", [1, 4])
def test_barriers_order_memory(warps: int) -> None:
    """A read after a barrier waits for the write before it, and for the warps, if several."""
    write = step(Action.SHARED, "p v", "", 32.0)
    read = step(Action.SHARED, "p", "w", 32.0)
    meet = step(Action.BARRIER)
    met = BARRIER_LATENCY if warps > 1 else 0.0
    assert once(load("v"), write, read, use("w"), warps=warps) == LATE
    assert once(load("v"), write, meet, read, use("w"), warps=warps) == LATE + met + 32.0
    # Arithmetic passes the barrier.
    assert once(load("v"), write, meet, use("p"), warps=warps) == LATE


def pipeline(depth: int, work: float, busy: float = 0.0) -> list[InstructionStep]:
    """A loop's body that waits for one tile, works on it, and asks for one `depth` trips on."""
    return [
        wait(Action.COPY_WAIT, depth - 1),
        step(Action.SHARED, "p", "a", 32.0),
        step(Action.MMA, "a", "c", 30.0, work),
        use("c"),
        step(Action.COPY, "p", "", LATE, busy),
        step(Action.COPY_COMMIT),
    ]


@pytest.mark.parametrize("depth", [1, 2, 3, 6])
def test_pipelines_share_the_latency(depth: int) -> None:
    """A copy that is waited for `depth` trips later costs each of them its part."""
    assert trip(*pipeline(depth, 0.0)) == pytest.approx(LATE / depth)


@given(work=st.integers(0, 3000), busy=st.integers(0, 3000))
def test_deeper_pipelines_take_less(work: int, busy: int) -> None:
    """Each stage more shortens the trip, until the link or the tensor cores bound it."""
    trips = [trip(*pipeline(depth, work, busy)) for depth in (1, 2, 3)]
    for shallow, deep in pairwise(trips):
        assert deep <= shallow * (1 + 1e-9)
    # A few trips are walked, so that the last one's queue is not yet full.
    assert trips[-1] >= 0.75 * max(work, busy)


@pytest.mark.parametrize(("still", "waited"), [(0, 3), (1, 2), (2, 1), (3, 0), (9, 0)])
def test_wait_group(still: int, waited: int) -> None:
    """`wait_group n` waits for all groups but the newest n, whatever is not yet in a group."""
    code = []
    for group in range(1, 4):
        code += [step(Action.COPY, "p", "", 100.0 * group), step(Action.COPY_COMMIT)]
    code.append(step(Action.COPY, "p", "", 5000.0))
    assert once(*code, wait(Action.COPY_WAIT, still), use("x")) == 100.0 * waited
    # A group that was waited for is gone; the next wait counts those that are left.
    assert once(*code, wait(Action.COPY_WAIT, still), wait(Action.COPY_WAIT, 0)) == 300.0


STEPS = st.lists(
    st.builds(
        step,
        st.sampled_from(
            [
                Action.COMPUTE,
                Action.GLOBAL_LOAD,
                Action.GLOBAL_STORE,
                Action.SHARED,
                Action.ATOMIC,
                Action.BARRIER,
                Action.COPY,
                Action.COPY_COMMIT,
                Action.COPY_WAIT,
                Action.MMA,
                Action.PRODUCT,
                Action.PRODUCT_COMMIT,
                Action.PRODUCT_WAIT,
            ]
        ),
        st.sampled_from(["", "r0", "r1", "r0 r1", "r2 r3"]),
        st.sampled_from(["", "r0", "r1", "r2", "r3"]),
        st.integers(0, 1000).map(float),
        st.integers(0, 100).map(float),
    ),
    max_size=24,
)
COMMITS = (Action.COPY_COMMIT, Action.PRODUCT_COMMIT)


@pytest.mark.slow(seconds=1)
@given(code=STEPS, added=STEPS, place=st.integers(0, 24))
def test_more_steps_never_shorten(
    code: Sequence[InstructionStep], added: Sequence[InstructionStep], place: int
) -> None:
    """Code with steps added takes as long or longer, if they overwrite nothing.

    A commit may close a group early, so that none is added.
    """
    extra = [item._replace(writes=("fresh",)) for item in added if item.action not in COMMITS]
    assert once(*code[:place], *extra, *code[place:]) >= once(*code)
