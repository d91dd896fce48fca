"""A child of the compiler for the tests that need one."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from asmtune.compile.sandbox import Sandbox, release


@pytest.fixture(scope="session")
def shared_sandbox() -> Iterator[Sandbox]:
    """Share a sandbox with all tests that leave it as it was."""
    sandbox = Sandbox(1 << 34)
    yield sandbox
    sandbox.close()


@pytest.fixture
def sandbox() -> Iterator[Sandbox]:
    """Open a sandbox for a test that kills it."""
    sandbox = Sandbox(1 << 34)
    yield sandbox
    sandbox.close()


@pytest.fixture(scope="session", autouse=True)
def no_children_left() -> Iterator[None]:
    """This process's own workers end with the session."""
    yield
    release()
