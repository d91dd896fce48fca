"""The runner of a page: its blocks in order, in a folder of their own, as a reader would."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from website import session
from website.blocks import ROOT, Block, PageError, blocks, in_repository
from website.checks import check, commands

_LEFT_OUT: Final = shutil.ignore_patterns(
    ".*", "__pycache__", "*.egg-info", "site", "build", "dist", "results", "shared"
)
# Anything of these needs a shell, and `asmtune` in it a process that loads everything.
_OF_SHELLS: Final = re.compile(r"[|&;<>()$`*?\[\]{}~]")


@dataclass(frozen=True)
class Ran:
    """A block and what it printed; None where it was checked and not run."""

    block: Block
    printed: str | None


def run(page: Path, *, gpu: bool) -> Iterator[Ran]:
    """Run a page's blocks in order.

    Args:
        page: the page.
        gpu: whether those that need a GPU run; they are checked otherwise.

    Raises:
        PageError: a block cannot be understood, or does not end as it should; says what it
            printed. The rest of the page is then left out.
    """
    listed = blocks(page)
    with _place(page) as place:
        for block in listed:
            yield Ran(block, place.run(block, gpu=gpu))


def mismatch(ran: Ran) -> str | None:
    """Describe where a page shows another output than was printed; None where it does not."""
    shown = ran.block.output
    if shown is None or shown.varies or ran.printed is None:
        return None
    printed = shown.of(ran.printed)
    if replace(shown, most=None).of(shown.text) == printed:
        return None
    where = f"{ran.block.where}: the page shows another output; run python -m website.refresh"
    return f"{where}\n--- page\n{shown.text}\n--- printed\n{printed}"


@contextmanager
def _place(page: Path) -> Iterator[Place]:
    with ExitStack() as undo:
        base = Path(undo.enter_context(tempfile.TemporaryDirectory(prefix="page-")))
        folder = base / "work"
        env = _environment(base)
        copied = in_repository(page)
        if copied:
            shutil.copytree(ROOT, folder, ignore=_LEFT_OUT)
            # Installed, kernels/ and cache/ are asmtune.kernels and asmtune.shipped.
            (folder / "asmtune" / "kernels").symlink_to(folder / "kernels")
            (folder / "asmtune" / "shipped").symlink_to(folder / "cache")
            env["PYTHONPATH"] = str(folder)
        else:
            folder.mkdir()
        yield Place(folder, env, undo, copied=copied)


def _environment(base: Path) -> dict[str, str]:
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("ASMTUNE_", "TRITON_"))}
    return {
        **kept,
        "ASMTUNE_CACHE_DIR": str(base / "cache"),
        "ASMTUNE_JOBS": os.environ.get("ASMTUNE_JOBS", "1"),
        "TRITON_CACHE_DIR": str(base / "triton"),
        "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")]),
    }


class Place:
    """A page's folder, and the process that runs its Python."""

    def __init__(
        self, folder: Path, env: Mapping[str, str], undo: ExitStack, *, copied: bool
    ) -> None:
        self._folder, self._env, self._undo, self._copied = folder, dict(env), undo, copied
        self._session: session.Session | None = None

    def run(self, block: Block, *, gpu: bool) -> str | None:
        """Run a block; return what it printed, or None where it is not one to run here.

        Raises:
            PageError: it does not end as it should.
        """
        if block.title is not None:
            self._write(block)
            return None
        if block.language == "text":
            return None
        if block.elsewhere is not None or (block.needs_gpu and not gpu):
            check(block)
            return None
        out = self._folder.parent / "out"
        out.write_text("")
        code = self._ended(block, out)
        printed = out.read_text().replace(f"{self._folder}/", "")
        printed = printed.replace(self._env["ASMTUNE_CACHE_DIR"], "$ASMTUNE_CACHE_DIR")
        wanted = int(block.marks.get("exits", "0"))
        if code != wanted:
            raise PageError(f"{block.where}: exit code {code}, not {wanted}:\n{printed}")
        return printed

    def _ended(self, block: Block, out: Path) -> int:
        if block.language == "python":
            return self._python(block, out)
        if block.language == "diff":
            return self._shell("git apply -", out, block.code)
        if self._copied or _needs_shell(block.code):
            return self._shell(block.code, out)
        code = 0
        for words in commands(block.code):
            if words[0] == "asmtune":
                code = session.asmtune(words[1:], self._folder, self._env, out)
            else:
                code = self._process(words, out)
            if code:
                return code
        return code

    def _python(self, block: Block, out: Path) -> int:
        if self._copied:
            raise PageError(f"{block.where}: in a copy of the repository, give Python as a file")
        if self._session is None:
            self._session = self._undo.enter_context(session.Session(self._folder, self._env))
        return self._session.run(block.code, f"{block.page.stem}_{block.line}.py", out)

    def _shell(self, script: str, out: Path, given: str = "") -> int:
        return self._process(["bash", "-e", "-u", "-o", "pipefail", "-c", script], out, given)

    def _process(self, command: Sequence[str], out: Path, given: str | None = None) -> int:
        place: dict[str, Any] = {"cwd": self._folder, "env": self._env}
        with out.open("a") as file:
            streams: dict[str, Any] = {"input": given, "stdout": file, "stderr": file}
            return subprocess.run(command, **place, **streams, text=True, check=False).returncode

    def _write(self, block: Block) -> None:
        if block.language == "python":
            check(block)
        path = self._folder / str(block.title)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(block.code)


def _needs_shell(script: str) -> bool:
    """Say if a script is more than commands and their words, one a line."""
    return bool(_OF_SHELLS.search(script)) or any("=" in words[0] for words in commands(script))
