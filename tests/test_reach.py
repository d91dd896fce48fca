"""Which tests a change can reach."""

from __future__ import annotations

from tests.reach import changed, chosen, groups

LOWPREC, ROOFLINE = "tests/workshop/lowprec", "tests/workshop/roofline"


def ignored(*files: str) -> set[str]:
    """The groups that a change of files leaves out."""
    first, *rest = chosen(list(files))
    assert first == "tests"
    return {argument.removeprefix("--ignore=") for argument in rest}


def test_a_wing_runs_its_own_tests() -> None:
    """A change in a wing runs that wing's tests, and no other group's."""
    assert ignored("asmtune/workshop/lowprec/scaler.py") == set(groups()) - {LOWPREC}
    assert ignored(f"{LOWPREC}/test_scaler.py") == set(groups()) - {LOWPREC}


def test_what_all_import_runs_all() -> None:
    """A change of the core runs each group that imports it, however far down."""
    assert ignored("asmtune/core/config.py") == set()
    assert LOWPREC in ignored("asmtune/store/database.py")
    assert ROOFLINE not in ignored("asmtune/store/database.py")


def test_all_run_where_it_is_not_known() -> None:
    """A file that decides how tests run, a base that is unknown, or none behind HEAD, run all."""
    assert chosen(["Makefile"]) == chosen(["tests/conftest.py"]) == chosen(None) == ["tests"]
    assert changed("no-such-branch") is None
    assert changed("HEAD") is None
