"""nvdisasm on cubins, and what becomes of it where it is missing, broken or slow."""

from __future__ import annotations

from pathlib import Path

import pytest
from triton import knobs

from asmtune.core.records.artifacts import Failure
from asmtune.report.code import disassemble

SLEEPS = '#!/bin/sh\nif [ "$1" = --version ]; then echo release 12.8; else exec sleep 60; fi\n'


@pytest.fixture
def slow_tool(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A tool that says its version and nothing else."""
    tool = tmp_path / "nvdisasm"
    tool.write_text(SLEEPS)
    tool.chmod(0o755)
    monkeypatch.setenv("TRITON_NVDISASM_PATH", str(tool))


def test_what_is_no_cubin() -> None:
    """A failure with the tool's own words, and without the path of a temporary file."""
    failure = disassemble(b"no cubin")
    assert (failure.stage, failure.kind) == ("sass", "nvdisasm")
    assert failure.detail.startswith("nvdisasm ended with ")
    assert "/" not in failure.detail


def test_a_tool_that_hangs_is_ended(slow_tool: None) -> None:
    """After the time limit, with the limit in words."""
    failure = disassemble(b"no cubin", timeout_s=0.2)
    assert failure == Failure("sass", "timeout", "nvdisasm took too long: 0.2 s for 8 bytes")


def test_without_the_tool(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Says what to install or to set."""
    tool = type(knobs.nvidia).__dict__["nvdisasm"]
    monkeypatch.setattr(tool, "default_path", str(tmp_path / "nowhere"))
    monkeypatch.delenv("TRITON_NVDISASM_PATH", raising=False)
    failure = disassemble(b"no cubin")
    assert (failure.stage, failure.kind) == ("sass", "tool")
    assert failure.detail.endswith("install triton with its tools, or set TRITON_NVDISASM_PATH")
