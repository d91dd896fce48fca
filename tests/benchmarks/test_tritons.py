"""Results under each Triton: what pytest's report says, by room and by function."""

from __future__ import annotations

import json

from asmtune.triton_api.compiler import NEWEST_TRIED
from benchmarks import tritons
from benchmarks.harness import RESULTS


def test_each_contract_test_is_read() -> None:
    """Every public function is named by a test's source or a helper's."""
    texts = "".join(text for _, text in tritons.sources())
    assert [name for name in tritons.functions() if name not in texts] == []


def test_what_was_tried_last_is_the_newest() -> None:
    """The notice of an untried Triton and the committed results name the same one."""
    found = json.loads((RESULTS / "tritons.json").read_text())["tritons"]
    assert found.keys() == tritons.TRITONS.keys()
    assert max(map(minor, found)) == minor(NEWEST_TRIED)


def minor(version: str) -> tuple[int, ...]:
    """Major and minor as numbers."""
    return tuple(map(int, version.split(".")[:2]))
