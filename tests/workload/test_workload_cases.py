"""The work of launches of real compiles, whole: every count of the cases, against a file.

`python -m tests.workload.test_workload_cases` writes the file anew; a change of it is a change of
what is counted, to be read line by line.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from asmtune.ir.ttir.analysis import Kernel, LaunchArguments
from asmtune.ir.ttir.work import Work
from tests.pinned import needs_block_pointers
from tests.workload.workload_cases import CASES, Case
from tests.workload.workload_lowering import after_passes, call, flops, lower, moved

LOOP = (
    *("parent", "depth", "trips", "least", "most", "entries", "iterations", "num_stages"),
    *("unroll_factor", "has_dot"),
)
ACCESS = (
    *("kind", "operation", "arguments", "foreign", "elements", "element_bytes", "by_index"),
    *("strides", "loop", "runs"),
)
UPDATES = ("tt.atomic_rmw", "tt.atomic_cas")
EXPECTED = Path(__file__).parent / "expected_work.json"


def facts(found: Work) -> dict[str, Any]:
    """All counts of a launch but those of integers, which later passes simplify."""
    loops = [[getattr(loop, name) for name in LOOP] for loop in found.loops]
    accesses = [
        [*(getattr(one, name) for name in ACCESS), round(one.share, 6)] for one in found.accesses
    ]
    uses = {
        use.name: "R" * use.reads + "W" * use.writes + "A" * use.atomics + "?" * use.unknown_use
        for use in found.arguments
    }
    ends = {use.name: [use.size_bytes, use.end_bytes] for use in found.arguments}
    read = (found.unique_read_bytes, found.unique_written_bytes, *map(found.updates, UPDATES))
    told: dict[str, Any] = {
        "exact": [found.exact, found.evaluated, found.programs],
        "loops": loops,
        "uses": uses,
        "ends": ends,
        "moved": [moved(found, kind) for kind in ("read", "write", "atomic")],
        "unique": read,
        "accesses": accesses,
        "dots": [[vars(one.dot), one.precision, one.loop, one.runs] for one in found.dots],
        "flops": flops(found),
        "elements": {n: value for n, value in found.elements.items() if "integer" not in n},
        "barriers": found.barriers,
        "assumed": [
            [one.operation, one.loop, one.reason, one.assumed] for one in found.assumptions
        ],
        "foreign": len(found.foreign_places),
    }
    return dict(json.loads(json.dumps(told)))


def work_of(case: Case, text: str = "") -> Work:
    """The work of a case, of its own text or another's."""
    launch = call(case.grid, **case.values)
    text = text or lower(case.kernel, case.arch, **case.values)
    return Kernel(text).work(LaunchArguments(case.values, launch.grid, case.sizes))


@pytest.mark.parametrize(
    "name",
    [pytest.param(n, marks=[needs_block_pointers] * (n == "blocks")) for n in sorted(CASES)],
)
def test_a_launch_has_the_work_that_its_source_says(name: str) -> None:
    """Loops, traffic, products, elements, uses, strides and what is assumed, each to the digit."""
    assert facts(work_of(CASES[name])) == json.loads(EXPECTED.read_text())[name]


SAME = (
    *("gemm_odd", "persistent", "causal", "layernorm", "triangular", "early", "tuple"),
    *("branchy", "invariant", "recurrence", "in_place", "transposed"),
)


@pytest.mark.parametrize("name", SAME)
def test_front_end_text_gives_what_later_text_gives(name: str) -> None:
    """Triton's passes inline, fold and move code; loops, bytes, work and uses stay."""
    case = CASES[name]
    text = lower(case.kernel, **case.values)
    before, after = (facts(work_of(case, each)) for each in (text, after_passes(text)))
    for one in (before, after):
        one["accesses"] = sorted(map(str, one["accesses"]))
    assert before == after


if __name__ == "__main__":
    lines = (f"{json.dumps(n)}: {json.dumps(facts(work_of(CASES[n])))}" for n in sorted(CASES))
    EXPECTED.write_text("{\n" + ",\n".join(lines) + "\n}\n")
