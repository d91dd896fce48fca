"""Processes that run a page's code, forked off one that has loaded the libraries already.

A page with ten commands would otherwise load PyTorch and Triton ten times: 3 s each.
"""

from __future__ import annotations

import atexit
import linecache
import multiprocessing
import os
import sys
import threading
import traceback
from collections.abc import Mapping, Sequence
from multiprocessing.connection import Connection
from pathlib import Path
from types import TracebackType
from typing import Any, Final, NoReturn, Self

_PRELOADED: Final = [
    "torch",
    "triton.language",
    "asmtune.predict.prune",
    "asmtune.runtime.offline.tuning_queue",
    "asmtune.tuning.session",
    "asmtune.cli.app",
]


def context() -> Any:
    """Make the context that starts processes with everything loaded."""
    server = multiprocessing.get_context("forkserver")
    server.set_forkserver_preload(_PRELOADED)
    return server


def asmtune(arguments: Sequence[str], folder: Path, env: Mapping[str, str], out: Path) -> int:
    """Run `asmtune` in a process of its own; return its exit code."""
    process = context().Process(target=_asmtune, args=(list(arguments), folder, dict(env), out))
    process.start()
    process.join()
    code: int = process.exitcode
    return code


class Session:
    """A Python process that runs one piece of code after the other, with one namespace."""

    def __init__(self, folder: Path, env: Mapping[str, str]) -> None:
        server = context()
        self._pipe, other = server.Pipe()
        self._process = server.Process(target=_serve, args=(other, folder, dict(env)))
        self._process.start()
        other.close()

    def run(self, code: str, name: str, out: Path) -> int:
        """Run code; what it prints, and the traceback it ends with, go to a file.

        Returns:
            Its exit code.
        """
        self._pipe.send((code, name, out))
        try:
            done: int = self._pipe.recv()
        except EOFError:
            self._process.join()
            return int(self._process.exitcode or 1)
        return done

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._pipe.close()
        self._process.join(60)
        if self._process.is_alive():
            self._process.kill()


def _enter(folder: Path, env: Mapping[str, str]) -> None:
    os.environ.clear()
    os.environ.update(env)
    os.chdir(folder)
    sys.path.insert(0, str(folder))
    sys.stdin = open(os.devnull)  # noqa: PTH123, SIM115 - the process's own, to its end


def _print_to(out: Path) -> None:
    sys.stdout.flush()
    sys.stderr.flush()
    with out.open("a") as file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)


def _asmtune(arguments: list[str], folder: Path, env: Mapping[str, str], out: Path) -> None:
    from asmtune.cli import main

    _enter(folder, env)
    _print_to(out)
    sys.argv = ["asmtune", *arguments]
    code = 0
    try:
        main()
    except SystemExit as ended:
        code = ended.code if isinstance(ended.code, int) else 1
    except BaseException:  # noqa: BLE001 - told with its traceback, as Python would
        traceback.print_exc()
        code = 1
    _leave(code)


def _serve(pipe: Connection, folder: Path, env: Mapping[str, str]) -> None:
    _enter(folder, env)
    # Triton reads a kernel's source through the module that it says it is of.
    sys.modules["__main__"].__dict__.clear()
    namespace = sys.modules["__main__"].__dict__
    namespace["__name__"] = "__main__"
    while True:
        try:
            code, name, out = pipe.recv()
        except EOFError:
            _leave(0)
        _print_to(out)
        pipe.send(_run(code, name, namespace))


def _leave(code: int) -> NoReturn:
    """End the process as a whole interpreter ends.

    That of multiprocessing waits for children without asking them to go, as joblib's workers
    expect at the interpreter's own end.
    """
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def _run(code: str, name: str, namespace: dict[str, Any]) -> int:
    lines = code.splitlines(keepends=True)
    linecache.cache[name] = (len(code), None, lines, name)
    try:
        exec(compile(code, name, "exec"), namespace)  # the pages are this repository's own
    except BaseException:  # noqa: BLE001 - told with its traceback, as Python would
        traceback.print_exc()
        return 1
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
    return 0
