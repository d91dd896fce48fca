"""The report of the checks on a GPU has a part for each file of tests."""

from __future__ import annotations

from tests.gpu import report
from tests.gpu.report import parts


def test_parts_exist() -> None:
    """Each file of tests has a part."""
    files = {str(path.relative_to(report.ROOT)) for path in report.ROOT.glob("tests/gpu/test_*.py")}
    assert files == {part.command[-1] for part in parts(6)}
