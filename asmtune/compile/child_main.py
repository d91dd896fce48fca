"""Main program of a child process: calls functions for its parent, which may kill it at any moment.

Run as `python -m asmtune.compile.child_main MEMORY`, and kept. A request is a line of JSON with a
pickled function and its arguments; the function gets this `ChildCompiler` first. Answers are lines
of JSON: the stage that begins now, or at last a pickled result or error.
"""

from __future__ import annotations

import base64
import json
import os
import pickle
import resource
import sys
from collections.abc import Callable, Mapping
from typing import Any, TextIO

from asmtune.base.child import die_with_parent, own_stdout
from asmtune.core.failures import wants_memory


class ChildCompiler:
    """Gives the functions that a child calls its back end, and what the compiler wrote on stderr.

    Attributes:
        is_damaged: whether this process must not be used again.
    """

    def __init__(self, say: Callable[[Mapping[str, Any]], None]) -> None:
        self._say = say
        self._back_end: Any = None
        self._log_at = 0
        self.is_damaged = False

    @property
    def back_end(self) -> Any:
        """Return the back end, made when it is first needed: it imports Triton."""
        if self._back_end is None:
            from asmtune.compile.back_end import BackEnd

            self._back_end = BackEnd(self._say)
        return self._back_end

    def announce(self, stage: str) -> None:
        """Tell the parent what begins."""
        self._say({"stage": stage})

    def begin(self) -> None:
        """Begin a request: forget what stderr holds of others."""
        self._log_at = os.fstat(2).st_size

    def log(self) -> str:
        """Return what was written on stderr since the request began."""
        size = os.fstat(2).st_size - self._log_at
        return os.pread(2, max(0, size), self._log_at).decode(errors="replace")


def answer(compiler: ChildCompiler, request: Mapping[str, Any]) -> dict[str, Any]:
    """Call what a request asks for; return the answer."""
    compiler.begin()
    try:
        function, arguments = pickle.loads(base64.b64decode(request["call"]))
        result = function(compiler, *arguments)
    except Exception as error:
        if wants_memory(f"{type(error).__name__}: {error}"):
            raise  # which ends this process: nothing in it can be relied on
        return {"error": packed(error)}
    return {"result": packed(result), "ends": compiler.is_damaged}


def packed(value: object) -> str:
    """Encode a value of this process for its parent, or of its parent for it."""
    return base64.b64encode(pickle.dumps(value)).decode()


def serve(lines: TextIO, out: TextIO) -> None:
    """Answer each request until the parent hangs up; one that is quiet has no answer."""

    def say(message: Mapping[str, Any]) -> None:
        out.write(json.dumps(message) + "\n")
        out.flush()

    compiler = ChildCompiler(say)
    for line in lines:
        request = json.loads(line)
        # After this process's own: the parent's may begin with the working directory.
        sys.path += [entry for entry in request.get("path", ()) if entry and entry not in sys.path]
        answered = answer(compiler, request)
        if not request.get("quiet"):
            say(answered)


def limit_memory(limit: int) -> None:
    """Limit this process's address space, at most to what its user may have (`ulimit -v`)."""
    hard = resource.getrlimit(resource.RLIMIT_AS)[1]
    limit = limit if hard == resource.RLIM_INFINITY else min(limit, hard)
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))


if __name__ == "__main__":
    die_with_parent()
    limit_memory(int(sys.argv[1]))
    serve(sys.stdin, own_stdout())
