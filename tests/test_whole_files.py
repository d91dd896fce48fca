"""Files that appear whole or stay as they were."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from asmtune.base.atomic_write import folder_lock, write_whole


def test_a_failure_leaves_what_was_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the content cannot be brought to the disk the old file stays, and no part is left."""
    place = tmp_path / "out.json"
    place.write_text("old")

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        write_whole(place, b"new")
    assert place.read_text() == "old"
    assert list(tmp_path.iterdir()) == [place]


def test_a_file_is_replaced(tmp_path: Path) -> None:
    """What was there is gone, nothing else lies beside it, and a link to it stays one."""
    real, link = tmp_path / "real", tmp_path / "link"
    real.write_text("a longer text than the new one")
    link.symlink_to(real)
    write_whole(link, b"new")
    assert link.is_symlink()
    assert real.read_bytes() == b"new"
    assert sorted(tmp_path.iterdir()) == [link, real]


def test_a_pipe_is_written_to(tmp_path: Path) -> None:
    """A pipe stays a pipe, and its reader gets the content."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    read: list[bytes] = []
    reader = threading.Thread(target=lambda: read.append(pipe.read_bytes()))
    reader.start()
    write_whole(pipe, b"new")
    reader.join(timeout=30)
    assert read == [b"new"]
    assert pipe.is_fifo()


def test_standard_output_by_its_device(tmp_path: Path) -> None:
    """Written to /dev/stdout, content reaches the file to which a shell has sent it, in order."""
    script = (
        "from pathlib import Path; from asmtune.base.atomic_write import folder_lock, write_whole; "
        "write_whole(Path('/dev/stdout'), b'content')"
    )
    out = tmp_path / "out"
    with out.open("wb") as stream:
        subprocess.run([sys.executable, "-c", script], stdout=stream, check=True)
    assert out.read_bytes() == b"content"
    assert list(tmp_path.iterdir()) == [out]


def test_a_process_that_is_forked_meanwhile_holds_no_lock(tmp_path: Path) -> None:
    """A child that is forked while its parent holds a folder's lock does not keep it."""
    with folder_lock(tmp_path):
        child = os.fork()
        if child == 0:
            signal.pause()
    try:
        with folder_lock(tmp_path, 0.0):
            assert list(tmp_path.iterdir()) == []
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)


def test_a_lock_is_not_waited_for_without_end(tmp_path: Path) -> None:
    """A process that stopped while it holds the lock ends the wait of others with an error."""
    with (
        folder_lock(tmp_path),
        pytest.raises(TimeoutError, match="another process has locked it"),
        folder_lock(tmp_path, 0.01),
    ):
        pass
