"""Results under each Triton: what pytest's report says, by room and by function."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from asmtune.triton_api.compiler import NEWEST_TRIED
from benchmarks import tritons
from benchmarks.harness import RESULTS

REPORT = """<testsuites><testsuite>
<testcase classname="tests.triton_api.test_compiler" name="test_options[a]"/>
<testcase classname="tests.triton_api.test_compiler" name="test_source_class">
<failure message="AttributeError: gone&#10;more"/></testcase>
<testcase classname="tests.launch.test_words" name="test_words">
<skipped message="no CUDA GPU"/></testcase>
<testcase classname="tests.test_small" name="test_small"><error message="cut off"/></testcase>
</testsuite></testsuites>"""


@pytest.fixture
def cases(tmp_path: Path) -> list[tritons.Case]:
    """Ends of four tests."""
    (tmp_path / "report.xml").write_text(REPORT)
    return [*tritons.read_cases(tmp_path / "report.xml")]


def test_how_tests_end(cases: list[tritons.Case]) -> None:
    """Each has its folder, its end and the first line of the reason; errors count as failures."""
    assert cases == [
        ("triton_api", "test_options[a]", "passed", ""),
        ("triton_api", "test_source_class", "failed", "AttributeError: gone"),
        ("launch", "test_words", "skipped", "no CUDA GPU"),
        ("", "test_small", "failed", "cut off"),
    ]
    assert tritons.counts(iter(cases)) == {"passed": 1, "skipped": 1, "failed": 2}


def test_a_function_has_the_end_of_the_tests_that_name_it(
    cases: list[tritons.Case], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A failed test speaks for each function that it, or a helper of it, names."""
    sources = {"test_source_class": "source_class(tiny)", "test_options": "option_names()"}
    monkeypatch.setattr(tritons, "sources", lambda: iter(sources.items()))
    found = tritons.contracts(cases)
    assert found["source_class"] == "test_source_class: AttributeError: gone"
    assert found["option_names"] == "pass"
    assert len(found) > 50


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
