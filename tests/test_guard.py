"""The boundary at which exceptions become failures."""

from __future__ import annotations

from typing import NoReturn

import pytest

from asmtune.base.errors import AsmtuneError, ProblemError, StoreError
from asmtune.core.failures import guarded, required
from asmtune.core.records.artifacts import Failure

INTERNAL = type("PTXASError", (Exception,), {})
RESOURCES = type("OutOfResources", (Exception,), {})


def failure(stage: str, error: BaseException) -> Failure:
    """The failure that an error at a stage amounts to."""

    def work() -> NoReturn:
        raise error

    found = guarded(stage, work)
    assert isinstance(found, Failure)
    assert found.stage == stage
    return found


@pytest.mark.parametrize(
    "error",
    [
        ValueError("bad"),
        AssertionError(),
        StopIteration(),
    ],
)
def test_any_exception_becomes_a_failure(error: Exception) -> None:
    """Whatever is raised becomes a failure of that stage, with the type's name in its detail."""
    found = failure("ptx", error)
    assert found.kind == "compiler"
    assert found.detail == f"{type(error).__name__}: {error}".rstrip()


@pytest.mark.parametrize("error", [ProblemError("x"), StoreError("x"), KeyboardInterrupt()])
def test_errors_about_input_and_interrupts_pass(error: BaseException) -> None:
    """Our own errors and Ctrl-C end the work: they are not about one config."""
    with pytest.raises((AsmtuneError, KeyboardInterrupt)) as caught:
        failure("ptx", error)
    assert caught.value is error


@pytest.mark.parametrize(
    ("stage", "error", "kind"),
    [
        (
            "cubin",
            INTERNAL("Internal error\nptxas fatal   : (C7602) Insufficient registers for wgmma"),
            "registers",
        ),
        ("cubin", INTERNAL("ptxas error   : Entry 'f' uses too much shared data"), "shared_memory"),
        ("llir", MemoryError("std::bad_alloc"), "memory"),
        (
            "llir",
            SystemError("<built-in function compile> returned NULL without setting an exception"),
            "memory",
        ),
        ("cubin", INTERNAL("`ptxas` failed with error code 139"), "ptxas"),
        ("cubin", INTERNAL("`ptxas` failed with error code -9"), "crash"),
        ("lower", RuntimeError("PassManager::run failed"), "kernel"),
        ("ttgir", RuntimeError("PassManager::run failed"), "compiler"),
    ],
)
def test_kind_is_read_off_the_message(stage: str, error: Exception, kind: str) -> None:
    """The message decides what a failure was; without a hint, the stage does."""
    assert failure(stage, error).kind == kind


def test_detail_is_the_essence() -> None:
    """The detail is ptxas's fatal line, without the PTX, the repro command or the echo."""
    found = failure(
        "cubin",
        INTERNAL(
            "PTXAS error: Internal Triton PTX codegen error\n\n"
            "`ptxas` stderr:\nptxas fatal   : (C7602) Insufficient registers\n"
            "ptxas fatal   : Ptx assembly aborted due to errors\n\n"
            "Repro command: ptxas -v x.ptx\n"
        ),
    )
    assert found.detail == "ptxas fatal   : (C7602) Insufficient registers"
    kept = failure("ttgir", RuntimeError("one\n\n  two  \nRepro command: x\n")).detail
    assert kept == "RuntimeError: one\n  two"


def test_ptxas_tells_what_it_refuses_first() -> None:
    """Without a fatal line but its last, ptxas's first error comes before what Triton says."""
    error = "ptxas /tmp/x.ptx, line 99; error   : Feature '.gather4' requires .target sm_100"
    last = "ptxas fatal   : Ptx assembly aborted due to errors"
    found = failure("cubin", INTERNAL(f"PTXAS error: Internal\n`ptxas` stderr:\n{error}\n{last}\n"))
    assert "line 99 of the PTX: Feature '.gather4' requires" in str(found)
    assert error in found.detail.splitlines()


def test_required_code_of_the_users() -> None:
    """What the user's code makes passes; what it raises is an input error that says of what."""
    assert required("the space", lambda: 3) == 3
    with pytest.raises(
        ProblemError, match=r"^the space: ZeroDivisionError: integer division or modulo by zero$"
    ):
        required("the space", lambda: 1 // 0)


def test_a_line_without_its_source_has_no_quote() -> None:
    """Triton gives a caller's line with the source of what is called, which may have no such."""
    error = type("CompilationError", (Exception,), {})()
    error.src, error.node = "def apart(x, at):\n    return at", type("Call", (), {"lineno": 9})()
    error.error_message = "apart is marked noinline"
    assert failure("lower", error).detail == "line 9 of the kernel: apart is marked noinline"
    error.node.lineno = 2
    assert '2 of the kernel, "return at": apart' in failure("lower", error).detail
