"""Files that a user names are read up to a limit, whatever they are."""

from __future__ import annotations

import gzip
import os
import subprocess
import sys
import tracemalloc
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from asmtune.base.errors import InputError
from asmtune.base.limited_read import MIB, inflated, read_limited, unzipped
from asmtune.core.hardware.shipped import load_target
from asmtune.core.inputs.shapes import read_shapes
from asmtune.core.ir_overrides import Override
from asmtune.runtime.offline.recorded_keys import read_keys
from asmtune.store import interchange
from asmtune.store.trace.reader import read_trace
from asmtune.workshop.regression.run import read_run
from asmtune.workshop.replay.oracle import load_oracle

READERS: dict[str, Callable[[Path], Any]] = {
    "target.json": lambda path: load_target(str(path)),
    "shapes": read_shapes,
    "keys.json": read_keys,
    "export.json": interchange.read,
    "run.json": read_run,
    "oracle.json": load_oracle,
    "trace.jsonl": read_trace,
    "override.ptx": lambda path: Override.read(str(path)),
}


@pytest.mark.parametrize("name", READERS)
def test_a_device_without_an_end(name: str, tmp_path: Path) -> None:
    """Every reader of a user's file refuses what is not a file, and waits for no named pipe."""
    (tmp_path / "device").mkdir()
    path, pipe = tmp_path / "device" / name, tmp_path / name
    path.symlink_to("/dev/zero")
    os.mkfifo(pipe)
    for one in (path, pipe):
        with pytest.raises(InputError, match=f"{name}.*not a regular file") as caught:
            READERS[name](one)
        assert "\n" not in str(caught.value)


def test_a_file_of_the_limit(tmp_path: Path) -> None:
    """A file may hold as many bytes as the limit; its size is not taken from the file system."""
    path = tmp_path / "file"
    path.write_bytes(b"12345678")
    assert read_limited(path, 8) == b"12345678"
    with pytest.raises(OSError, match="too large: 8 bytes, and at most 7 are read"):
        read_limited(path, 7)
    assert Path("/proc/self/status").stat().st_size == 0
    with pytest.raises(OSError, match="and at most 16 are read"):
        read_limited(Path("/proc/self/status"), 16)


def test_standard_input_by_its_device() -> None:
    """What a shell sends through a pipe is read, as from a file."""
    script = (
        "from pathlib import Path; from asmtune.base.limited_read import read_limited; "
        "print(read_limited(Path('/dev/stdin')))"
    )
    command = [sys.executable, "-c", script]
    done = subprocess.run(command, input=b"content", capture_output=True, check=True)
    assert done.stdout == b"b'content'\n"


def test_what_is_large_when_decompressed() -> None:
    """Content is decompressed up to its limit, and no memory is taken beyond it."""
    large = bytes(64 * MIB)
    zipped, deflated = gzip.compress(large), zlib.compress(large)
    assert unzipped(gzip.compress(b"1234") + gzip.compress(b"5678"), 8) == b"12345678"
    assert inflated(zlib.compress(b"12345678"), 8) == b"12345678"
    tracemalloc.start()
    try:
        with pytest.raises(OSError, match="too large: at most 1,048,576 bytes"):
            unzipped(zipped, MIB)
        with pytest.raises(ValueError, match="too large: at most 1,048,576 bytes"):
            inflated(deflated, MIB)
        assert tracemalloc.get_traced_memory()[1] < 8 * MIB
    finally:
        tracemalloc.stop()
    with pytest.raises(ValueError, match="cut off"):
        inflated(zlib.compress(b"12345678")[:-3], 8)
    with pytest.raises(EOFError):
        unzipped(gzip.compress(b"12345678")[:-9], 8)


@pytest.mark.parametrize(
    ("name", "read"),
    [
        ("asmtune.workshop.replay.oracle", load_oracle),
        ("asmtune.workshop.regression.run", read_run),
    ],
)
def test_small_files_of_large_content(
    name: str, read: Callable[[Path], Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A compressed file of timings or of a run has a limit for its content."""
    monkeypatch.setattr(f"{name}.MIB", 1)
    path = tmp_path / "file.json.gz"
    path.write_bytes(gzip.compress(b" " * 5000))
    with pytest.raises(
        InputError, match="too large: at most 1,024 bytes are decompressed"
    ) as caught:
        read(path)
    assert "\n" not in str(caught.value)
