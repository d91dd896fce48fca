"""Remote hosts that are this one: a stand-in for `ssh`, and one for the Python of a host."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest

HERE = Path(__file__).parent
SUM_CHILD = str(HERE / "sum_child.py")


def script(path: Path, text: str) -> Path:
    """Write a program for a shell."""
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return path


def stand_in_ssh(folder: Path, patch: pytest.MonkeyPatch) -> None:
    """Put an `ssh` first on PATH that runs the command here; hosts named "down" refuse."""
    folder.mkdir(exist_ok=True)
    refuse = 'case "$*" in *" down "*) echo "connect to host down: refused" >&2; exit 255;; esac'
    script(folder / "ssh", f'{refuse}\nfor last; do :; done\nexec sh -c "$last"')
    patch.setenv("PATH", f"{folder}:{os.environ['PATH']}")


def far_python(path: Path, **wish: Any) -> Path:
    """Write a Python that runs an agent whose host says what is wished: see `cpu_remote`."""
    text = json.dumps(wish)
    return script(path, f"STAND_IN='{text}' exec {sys.executable} {HERE / 'cpu_remote.py'} \"$@\"")
