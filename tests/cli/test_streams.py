"""Streams that fail, terminals of every width, and Ctrl-C: no traceback, the usual codes."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import signal
import struct
import subprocess
import sys
import termios
import time
from pathlib import Path

import pytest

from asmtune.cli.output import print_line, write_note, write_result
from asmtune.report.cells import plain_table
from tests.command_lines import Commands

GOLDEN = Path(__file__).parents[1] / "report" / "golden"
TABLE = ("targets",)
PAGE = ("targets", "show", "H200", "--format", "json")
REPORT = """
from tests.report.widths import reports_of
from asmtune.cli.output import write_result
from asmtune.report.tables import prune_table
write_result(prune_table(reports_of("one")))
"""


def shell(
    line: str, *arguments: str, env: dict[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Run a line of bash, in which `asmtune` stands for the command with the arguments."""
    command = " ".join(("$PYTHON", "-m", "asmtune", *(f"'{word}'" for word in arguments)))
    return subprocess.run(
        ["bash", "-c", line.replace("asmtune", command)],
        capture_output=True,
        text=True,
        timeout=120,
        env={**os.environ, "PYTHON": sys.executable, **(env or {})},
        check=False,
    )


@pytest.mark.slow(seconds=4)
@pytest.mark.parametrize("arguments", [("model", "features"), ("--help",), PAGE])
def test_a_stdout_that_fails(arguments: tuple[str, ...]) -> None:
    """A closed stdout and a full device are one line and exit code 1; a gone reader is 141."""
    for to, reason in ((">&-", "Bad file descriptor"), ("> /dev/full", "No space left on device")):
        ran = shell(f"asmtune {to}", *arguments)
        line = f"asmtune: stdout: {reason}: the output is not whole\n"
        assert (ran.returncode, ran.stdout, ran.stderr) == (1, "", line), to
    # The reader has gone before the first byte, however little is written.
    ran = shell("{ sleep 0.2; asmtune; echo $? >&2; } | true", *arguments)
    assert (ran.stdout, ran.stderr) == ("", "141\n")


def test_encodings_without_lines() -> None:
    """A table is written whatever the encoding lacks; a document is UTF-8 everywhere."""
    ascii_only = {"PYTHONIOENCODING": "ascii"}
    ran = shell("asmtune", *TABLE, env=ascii_only)
    assert (ran.returncode, ran.stderr, ran.stdout.isascii()) == (0, "", True)
    pages = [shell("asmtune", *PAGE, env=env).stdout for env in (ascii_only, None)]
    assert pages[0] == pages[1] != ""
    ran = shell("asmtune", "prune-report", "größe→", env=ascii_only)
    assert (ran.returncode, ran.stderr.count("\n")) == (2, 1)


def on_terminal(columns: int, **env: str) -> str:
    """A report on a terminal that wide, without the codes of colours."""
    reader, writer = pty.openpty()
    fcntl.ioctl(writer, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    given = {name: value for name, value in os.environ.items() if name != "COLUMNS"}
    process = subprocess.Popen(
        [sys.executable, "-c", REPORT],
        stdin=writer,
        stdout=writer,
        stderr=subprocess.DEVNULL,
        env={**given, "TERM": "xterm", **env},
    )
    os.close(writer)
    shown = b""
    while chunk := _read(reader):
        shown += chunk
    os.close(reader)
    assert process.wait(60) == 0
    text = shown.decode().replace("\r\n", "\n")
    return re.sub(r"\x1b\[[0-9;]*m", "", text)


def _read(reader: int) -> bytes:
    try:
        return os.read(reader, 65536)
    except OSError:  # the other side has hung up
        return b""


@pytest.mark.slow(seconds=6)
@pytest.mark.parametrize(
    ("columns", "env", "shown_as"),
    [
        (60, {}, 60),
        (120, {}, 120),
        (0, {}, 80),
        (200, {"COLUMNS": "80"}, 80),
        (80, {"TERM": "dumb"}, 80),
    ],
)
def test_the_terminal_sets_the_width(columns: int, env: dict[str, str], shown_as: int) -> None:
    """A report is shown as committed; without a width a terminal has 80 columns."""
    lines = [line.rstrip() for line in on_terminal(columns, **env).splitlines()]
    wanted = (GOLDEN / f"one_{shown_as}.txt").read_text(encoding="utf-8")
    assert "\n".join(lines) + "\n" == wanted


EVIL = "[red]x[/red] [/] \x1b[31m\x1b]0;t\x07 \u202e\u2066 \x9b1m"


def test_names_are_no_codes(capsys: pytest.CaptureFixture[str]) -> None:
    """Messages, notes and tables show markup as it is, and control codes escaped."""
    table = plain_table(EVIL, (EVIL, "n"))
    table.add_row(EVIL, "1")
    print_line(EVIL)
    print_line(EVIL, err=True)
    write_result(table)
    write_note(table)
    for text in capsys.readouterr():
        assert text.replace("\n", "").isprintable(), ascii(text)
        assert "[red]x[/red] [/] \\x1b[31m" in text
        assert "\\u202e\\u2066" in text


def test_names_in_errors_are_no_codes(commands: Commands) -> None:
    """A name of the command line that holds control codes is shown escaped in the error."""
    for arguments in (
        ("prune-report", EVIL),
        ("prune-report", f"{EVIL}.json"),
        ("prune-report", "tiled_matmul", "--target", EVIL),
        ("explain", "tiled_matmul", "--config", f"{EVIL}=1"),
        ("cache", "show", EVIL),
        (EVIL,),
    ):
        ran = commands.run(*arguments)
        assert ran.code == 2
        assert ran.err.rstrip("\n").isprintable(), ascii(ran.err)


def interrupted(after_s: float, *arguments: str) -> tuple[int, str]:
    """Press Ctrl-C so many seconds after the start; the exit code and stderr."""
    process = subprocess.Popen(
        [sys.executable, "-m", "asmtune", *arguments],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    time.sleep(after_s)
    os.killpg(process.pid, signal.SIGINT)
    _, err = process.communicate(timeout=60)
    return process.returncode, err


@pytest.mark.slow(seconds=5)
def test_ctrl_c_while_it_starts() -> None:
    """Ctrl-C at any time of the imports and of the first work is a line and exit code 130."""
    arguments = ("prune-report", "tiled_matmul", "--axis", "num_warps=4", "--scorer", "learned")
    for step in range(8):
        code, err = interrupted(0.15 + 0.25 * step, *arguments)
        if code == 0:
            break  # it was done before
        assert (code, err) == (130, "asmtune: interrupted\n"), step
