"""Main program of the compiler's process: JSON requests on stdin, artifacts on stdout.

Run as `python -m asmtune.compile.child_main`, once per worker, and kept. The parent may kill it at
any moment. It announces each stage before it begins, so that the parent knows which stage did not
return.
"""

from __future__ import annotations

import base64
import json
import re
import resource
import sys
from collections import OrderedDict
from collections.abc import Mapping
from typing import Any, Final, TextIO

from asmtune.base.child import die_with_parent, own_stdout
from asmtune.compile.stages import MLIR, StageRun, apply_override, toolchain_of, ttgir_of
from asmtune.core.ir_overrides import Override
from asmtune.core.records.artifacts import Failure

_MAXNREG_ATTRIBUTE: Final = re.compile(r"ttg\.maxnreg = \d+ : i32(, )?")
_OPENS_MODULE: Final = re.compile(r'^module attributes \{(?="?([\w.\-]+))', re.MULTILINE)
# IR whose passes before LLVM read the cap: warps that share out registers, loads of tensor memory.
_READS_CAP: Final = re.compile(r"warp_specialize|tmem|tensor_memory")
_LINKED_FROM_PTX: Final = ("maxnreg", "num_stages")
_MEMO_SIZE: Final = 8


class BackEnd:
    """Runs the stages after TTIR; LLVM only once for configs of the same PTX.

    `maxnreg` is one directive of the PTX, and `num_stages` changes nothing without a pipelined
    loop. If the TTGIR of two configs differs in the cap only, the second reuses the PTX of the
    first. LLVM, half of the time of a compile, then runs once.
    """

    def __init__(self, out: TextIO) -> None:
        self._out = out
        self._memo: OrderedDict[str, tuple[str, dict[str, Any]]] = OrderedDict()
        self._sketched: tuple[str, dict[str, Any]] | None = None

    def build(self, request: Mapping[str, Any]) -> dict[str, Any] | Failure:
        """Compiles a request to an artifact's JSON values, or a failure."""
        run = StageRun(request, self._say)
        outputs = self._outputs(request, run)
        if isinstance(outputs, Failure):
            return outputs
        cubin = run.stage("cubin", outputs["ptx"])
        if isinstance(cubin, Failure):
            return cubin
        return {
            "entry": run.metadata["name"],
            "outputs": {"ttir": request["ttir"], **outputs},
            "cubin": base64.b64encode(cubin).decode(),
            "metadata": run.metadata,
            "seconds": run.seconds,
        }

    def _outputs(self, request: Mapping[str, Any], run: StageRun) -> dict[str, str] | Failure:
        """Compiles a request to TTGIR and PTX, with its hand-edited file, or a failure."""
        module = run.ttgir()
        if isinstance(module, Failure):
            return module
        ttgir, metadata = str(module), dict(run.metadata)
        override = request.get("override")
        ptx = self._ptx(ttgir, module, request["options"], run)
        if isinstance(ptx, Failure):
            return ptx
        outputs = {"ttgir": ttgir, "ptx": ptx}
        if override is None:
            return outputs
        return apply_override(Override(**override), outputs, metadata, run)

    def sketch(self, request: Mapping[str, Any]) -> dict[str, Any] | Failure:
        """Compiles a request as far as LLVM, or returns the failure.

        `maxnreg` is one attribute of the module, so the sketch of a config serves another that
        differs in it alone.
        """
        options = {**request["options"], "maxnreg": None}
        seen = [request["ttir"], options, request["machine"], request.get("override")]
        key = json.dumps(seen, sort_keys=True)
        if self._sketched is not None and self._sketched[0] == key:
            return _capped(self._sketched[1], request["options"]["maxnreg"])
        sketch = self._sketch(request)
        if not isinstance(sketch, Failure) and _is_capped_alike(sketch["ttgir"]):
            self._sketched = key, sketch
        return sketch

    def _sketch(self, request: Mapping[str, Any]) -> dict[str, Any] | Failure:
        run = StageRun(request, self._say)
        module = run.ttgir()
        override = request.get("override")
        if override is not None and override["stage"] in MLIR:
            module = ttgir_of(Override(**override), run)
        if isinstance(module, Failure):
            return module
        ttgir = str(module)
        allocated = run.allocate(module)
        if isinstance(allocated, Failure):
            return allocated
        return {"ttgir": ttgir, "metadata": {**run.metadata, **allocated}}

    def _ptx(
        self, ttgir: str, module: Any, options: Mapping[str, Any], run: StageRun
    ) -> str | Failure:
        # Warp specialisation divides registers among warps by the cap.
        shareable = "ttg.warp_specialize" not in ttgir
        rest = {k: v for k, v in options.items() if k not in _LINKED_FROM_PTX}
        key = _MAXNREG_ATTRIBUTE.sub("", ttgir) + json.dumps(rest, sort_keys=True)
        if shareable and key in self._memo:
            known_ptx, metadata_of_llvm = self._memo[key]
            self._memo.move_to_end(key)
            run.metadata.update(metadata_of_llvm)
            return _with_cap(known_ptx, options["maxnreg"])
        before = set(run.metadata)
        llir = run.stage("llir", module)
        ptx: str | Failure = llir if isinstance(llir, Failure) else run.stage("ptx", llir)
        if shareable and not isinstance(ptx, Failure):
            metadata_of_llvm = {k: v for k, v in run.metadata.items() if k not in before}
            self._memo[key] = (_with_cap(ptx, None), metadata_of_llvm)
            while len(self._memo) > _MEMO_SIZE:
                self._memo.popitem(last=False)
        return ptx

    def _say(self, message: Mapping[str, Any]) -> None:
        self._out.write(json.dumps(message, default=str) + "\n")
        self._out.flush()

    def serve(self, lines: TextIO) -> None:
        """Answers each request until the parent hangs up."""
        for line in lines:
            request = json.loads(line)
            if "start" in request:
                toolchain_of(*request["start"])
                self._say({"result": {}})
                continue
            result = self.sketch(request) if request["sketch"] else self.build(request)
            if isinstance(result, Failure):
                answer: dict[str, Any] = {
                    "failure": {"stage": result.stage, "kind": result.kind, "detail": result.detail}
                }
            else:
                answer = {"result": result}
            self._say(answer)


def _with_cap(ptx: str, maxnreg: int | None) -> str:
    """Replaces or removes the PTX's `.maxnreg` directive."""
    bare = re.sub(r"^\.maxnreg \d+\n", "", ptx, count=1, flags=re.MULTILINE)
    if maxnreg is None:
        return bare
    return re.sub(
        r"^(\.reqntid [^\n]*\n)", rf"\1.maxnreg {maxnreg}\n", bare, count=1, flags=re.MULTILINE
    )


def _is_capped_alike(ttgir: str) -> bool:
    """Returns whether another cap would change only the module's first attribute."""
    first = _OPENS_MODULE.search(ttgir)
    return first is not None and first[1] >= "ttg.maxnreg" and not _READS_CAP.search(ttgir)


def _capped(sketch: Mapping[str, Any], maxnreg: int | None) -> dict[str, Any]:
    """Replaces or removes the register cap of a sketch."""
    bare = _MAXNREG_ATTRIBUTE.sub("", sketch["ttgir"], count=1)
    cap = "" if maxnreg is None else f"ttg.maxnreg = {maxnreg} : i32, "
    ttgir = _OPENS_MODULE.sub(lambda opens: opens[0] + cap, bare, count=1)
    return {"ttgir": ttgir, "metadata": {**sketch["metadata"], "maxnreg": maxnreg}}


def main() -> None:
    """Serves requests; stdout of the compiler and its tools goes nowhere."""
    die_with_parent()
    limit = int(sys.argv[1])
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    BackEnd(own_stdout()).serve(sys.stdin)


if __name__ == "__main__":
    main()
