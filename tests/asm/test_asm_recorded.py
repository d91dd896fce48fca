"""All that is read of each recorded dump, against a file; and what holds of any dump.

`python -m tests.asm.test_asm_recorded` writes the file anew; a change of it is a change of what is
read, to be held against the text. Figures of the first dumps were counted by hand and with grep.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from asmtune.base.fingerprint import digest
from asmtune.ir.asm.counts import block_threads, count, hottest_loop, mnemonic_counts
from asmtune.ir.asm.memory import access, expected_bytes
from asmtune.ir.asm.nvptx import classify, entries, registers
from asmtune.ir.asm.program import AsmFunction
from asmtune.ir.asm.ptx import parse_ptx, ptx_kernel
from asmtune.ir.asm.tensor import tensor_ops
from tests.asm.asm_dumps import fixture_listing, fixture_text, ptx_names

EXPECTED = Path(__file__).parent / "expected_dumps.json"


def facts(name: str) -> dict[str, Any]:
    """Counts, loops, threads, products and accesses of a dump, and a digest of its registers."""
    listing = parse_ptx(fixture_text(name))
    program = listing.entry
    counts, hottest = count(program), hottest_loop(program)
    read = [[*map(sorted, map(set, registers(one)))] for one in program.instructions]
    accesses = [str(found) for one in program.instructions if (found := access(one)) is not None]
    told: dict[str, Any] = {
        "names": [[one.name, one.is_entry, one.threads] for one in listing.programs],
        "counts": {
            field: {str(key): value for key, value in getattr(counts, field).items()}
            for field in ("instructions", "by_class", "cta_flops", "thread_bytes")
        },
        "mnemonics": {name: n for name, n in mnemonic_counts(listing).items() if n},
        "loops": [
            [program.blocks[loop.header].label, loop.role, loop.depth, loop.parent, loop.latches]
            for loop in program.loops
        ],
        "hottest": hottest and program.blocks[hottest.header].label,
        "threads": block_threads(program),
        "entries": list(map(vars, entries(fixture_text(name)))),
        "products": sorted({str(one) for one in tensor_ops(program).values()}),
        "accesses": {text: accesses.count(text) for text in sorted(set(accesses))},
        "expected": sorted(filter(None, map(expected_bytes, program.instructions))),
        "whole": len(ptx_kernel(listing).instructions),
        "successors": digest(str([block.successors for block in program.blocks])),
        "registers": digest(str(read)),
        "sources": digest(str([one.source for one in program.instructions])),
    }
    return dict(json.loads(json.dumps(told, default=str)))


@pytest.mark.parametrize("name", ptx_names())
def test_a_dump_is_read_as_before(name: str) -> None:
    """Every count, loop, product, access and register of a dump is that of the file."""
    assert facts(name) == json.loads(EXPECTED.read_text())[name]


@pytest.mark.parametrize("name", ptx_names())
def test_counts_add_up(name: str) -> None:
    """Each instruction is counted once by depth and by class, and each has a known class."""
    program = fixture_listing(name).entry
    counts = count(program)
    total = len(program.instructions)
    assert sum(counts.instructions.values()) == total
    assert sum(sum(depths.values()) for depths in counts.by_class.values()) == total
    for item in program.instructions:
        block = program.blocks[program.block_of(item.index)]
        assert block.start <= item.index < block.end
        assert str(classify(item.opcode)) != "unknown"


@pytest.mark.parametrize("name", ptx_names())
def test_registers_are_all_that_are_named(name: str) -> None:
    """All registers of an instruction are read or written; a result is the whole first operand."""
    for program in fixture_listing(name).programs:
        for item in program.instructions:
            read, written = registers(item)
            named = re.findall(r"%[a-z]+\d+", f"{item.predicate or ''} {item.text}")
            assert {*read, *written} == set(named)
            first = re.findall(r"%[a-z]+\d+", item.operands[0]) if item.operands else []
            assert written in ([], first)


def llvm_loops(text: str) -> dict[str, int]:
    """Return the loops that LLVM names in its comments: depth by the header's label."""
    found = {}
    for match in re.finditer(r"^(\$L__BB\d+_\d+):(.*\n(?:\s*//.*\n)*)", text, re.MULTILINE):
        depth = re.search(r"This (?:Inner )?Loop Header: Depth=(\d+)", match[2])
        if depth:
            found[match[1]] = int(depth[1])
    return found


def our_loops(program: AsmFunction) -> dict[str, int]:
    """Return the loops we find in the same form; LLVM knows none inside inline assembly."""
    found = {}
    for loop in program.loops:
        label = program.blocks[loop.header].label or ""
        depth, parent = 1, loop.parent
        while parent is not None:
            depth, parent = depth + 1, program.loops[parent].parent
        if label.startswith("$L__BB"):
            found[label] = depth
    return found


@pytest.mark.parametrize("name", ptx_names())
def test_loops_are_those_that_llvm_names(name: str) -> None:
    """In every dump, headers and depths of loops equal those in LLVM's own comments."""
    text = fixture_text(name)
    found: dict[str, int] = {}
    for program in parse_ptx(text).programs:
        found |= our_loops(program)
    assert found == llvm_loops(text)


if __name__ == "__main__":
    lines = (f"{json.dumps(name)}: {json.dumps(facts(name))}" for name in ptx_names())
    EXPECTED.write_text("{\n" + ",\n".join(lines) + "\n}\n")
