"""The back end's process: requests on stdin, artifacts on stdout, one JSON a line.

Run as `python -m asmtune.compile.child`, once a worker, and kept; whoever
started it may kill it at any moment. Before each stage it says which one, so
that the one that never returned is known.
"""

from __future__ import annotations

import base64
import ctypes
import json
import os
import re
import resource
import signal
import sys
import time
from collections import OrderedDict
from collections.abc import Mapping
from functools import cache
from typing import Any, Final, TextIO

from asmtune.compile.toolchain import StageFunction, Toolchain
from asmtune.guard import guarded
from asmtune.records import Failure

_KEPT_STAGES: Final = ("ttgir", "ptx")
_MAXNREG_ATTRIBUTE: Final = re.compile(r"ttg\.maxnreg = \d+ : i32(, )?")
_LINKED_FROM_PTX: Final = ("maxnreg", "num_stages")
_MEMO_SIZE: Final = 8


class BackEnd:
    """Runs the stages after TTIR, and each only once for the same input.

    `maxnreg` is one directive of the PTX, and `num_stages` changes nothing
    without a pipelined loop: where the TTGIR of two configs is equal but for
    the cap, the second reuses the first one's PTX. LLVM, half of the time of
    a compile, then runs once.
    """

    def __init__(self, out: TextIO) -> None:
        self._out = out
        self._memo: OrderedDict[str, tuple[str, dict[str, Any]]] = OrderedDict()

    def build(self, request: Mapping[str, Any]) -> dict[str, Any] | Failure:
        """The artifact of a request as JSON values, or the failure."""
        toolchain = _toolchain(*request["machine"])
        options = toolchain.options(request["options"])
        stages = dict(toolchain.stages(options))
        metadata: dict[str, Any] = dict(options.__dict__)
        seconds: dict[str, float] = {}

        def run(name: str, module: Any) -> Any:
            self._say({"stage": name})
            start = time.perf_counter()
            result = guarded(name, lambda: stages[name](module, metadata))
            seconds[name] = round(time.perf_counter() - start, 6)
            return result

        module: Any = guarded("ttir", lambda: toolchain.parse_ttir(request["ttir"]))
        for name in ("ttir", "ttgir"):
            if isinstance(module, Failure):
                return module
            module = run(name, module)
        if isinstance(module, Failure):
            return module
        ttgir = str(module)
        ptx = self._ptx(ttgir, module, request["options"], metadata, run)
        cubin = ptx if isinstance(ptx, Failure) else run("cubin", ptx)
        if isinstance(cubin, Failure):
            return cubin
        return {
            "entry": metadata["name"],
            "outputs": {"ttir": request["ttir"], "ttgir": ttgir, "ptx": ptx},
            "cubin": base64.b64encode(cubin).decode(),
            "metadata": metadata,
            "seconds": seconds,
        }

    def _ptx(
        self,
        ttgir: str,
        module: Any,
        options: Mapping[str, Any],
        metadata: dict[str, Any],
        run: StageFunction,
    ) -> str | Failure:
        # Warp specialisation shares registers out among warps by the cap.
        shareable = "ttg.warp_specialize" not in ttgir
        rest = {k: v for k, v in options.items() if k not in _LINKED_FROM_PTX}
        key = _MAXNREG_ATTRIBUTE.sub("", ttgir) + json.dumps(rest, sort_keys=True)
        if shareable and key in self._memo:
            ptx, learnt = self._memo[key]
            self._memo.move_to_end(key)
            metadata.update(learnt)
            return _with_cap(ptx, options["maxnreg"])
        before = set(metadata)
        llir = run("llir", module)
        made: str | Failure = llir if isinstance(llir, Failure) else run("ptx", llir)
        if shareable and not isinstance(made, Failure):
            learnt = {k: v for k, v in metadata.items() if k not in before}
            self._memo[key] = (_with_cap(made, None), learnt)
            while len(self._memo) > _MEMO_SIZE:
                self._memo.popitem(last=False)
        return made

    def _say(self, message: Mapping[str, Any]) -> None:
        self._out.write(json.dumps(message, default=str) + "\n")
        self._out.flush()

    def serve(self, lines: TextIO) -> None:
        """Answers each request until the other side hangs up."""
        for line in lines:
            built = self.build(json.loads(line))
            if isinstance(built, Failure):
                answer: dict[str, Any] = {
                    "failure": {"stage": built.stage, "kind": built.kind, "detail": built.detail}
                }
            else:
                answer = {"artifact": built}
            self._say(answer)


def _with_cap(ptx: str, maxnreg: int | None) -> str:
    """The PTX with another `.maxnreg` directive, or none."""
    bare = re.sub(r"^\.maxnreg \d+\n", "", ptx, count=1, flags=re.MULTILINE)
    if maxnreg is None:
        return bare
    return re.sub(
        r"^(\.reqntid [^\n]*\n)", rf"\1.maxnreg {maxnreg}\n", bare, count=1, flags=re.MULTILINE
    )


@cache
def _toolchain(backend: str, arch: int, warp_size: int) -> Toolchain:
    return Toolchain(backend, arch, warp_size)


def _die_with_parent() -> None:
    """Linux ends this process when the one that started it ends, however it ends."""
    pr_set_pdeathsig = 1
    ctypes.CDLL(None).prctl(pr_set_pdeathsig, signal.SIGKILL)


def main() -> None:
    """Serves requests; stdout of the compiler and its tools goes nowhere."""
    _die_with_parent()
    limit = int(sys.argv[1])
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    out = os.fdopen(os.dup(1), "w")
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)
    BackEnd(out).serve(sys.stdin)


if __name__ == "__main__":
    main()
