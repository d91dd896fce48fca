"""Exit codes: 3 where nothing here can run it, for lack of a GPU or of a compiler."""

from __future__ import annotations

import sys

import pytest
import torch

from tests.command_lines import Commands

PLAIN = (
    *("prune-report", "{}/plain.py:jitted", "--arg", "x_ptr=fp16[n]", "--arg", "n=4093"),
    *("--axis", "BLOCK=128", "--axis", "num_warps=4", "--grid", "cdiv(n,BLOCK)"),
)


@pytest.mark.parametrize(
    "arguments",
    [
        ("tune", "{}/doubled.py"),
        ("bench", "{}/doubled.py", "-o", "{}/run.json"),
        ("targets", "show"),
        ("model", "collect", "{}/doubled.py", "--output", "{}/timings.json"),
    ],
)
def test_no_gpu(
    commands: Commands, monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...]
) -> None:
    """Every command that needs a GPU says in one line that it is missing, and exits with 3."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert "needs a CUDA GPU" in commands.refused(*arguments, code=3)


def test_no_compiler(commands: Commands, monkeypatch: pytest.MonkeyPatch) -> None:
    """If no process of the compiler starts, the kernel is not at fault."""
    monkeypatch.setenv("ASMTUNE_CACHE_DIR", str(commands.folder / "cache"))
    died = [sys.executable, "-c", "raise SystemExit(7)"]
    # Children of earlier tests, which live, wait for work.
    monkeypatch.setattr("asmtune.compile.sandbox._idle", {})
    monkeypatch.setattr("asmtune.compile.sandbox.module_command", lambda *_: died)
    assert "no config of plain can run on H200" in commands.refused(*PLAIN, code=3)
