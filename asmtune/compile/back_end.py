"""The back end: runs the compiler's stages after TTIR in a child process, and shares their work.

Each stage is announced before it begins, so that the parent knows which one did not return.
"""

from __future__ import annotations

import json
import re
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any, Final

from asmtune.core.failures import guarded
from asmtune.core.ir_overrides import STAGES, Override
from asmtune.core.records.artifacts import Failure
from asmtune.ir.asm.nvptx import entries
from asmtune.triton_api.compiler import Toolchain


class StageRun:
    """Runs the stages of one request; announces each before it begins, and times it.

    Attributes:
        metadata: Triton's own, filled by the stages.
        seconds: time of each stage.
    """

    def __init__(
        self, request: Mapping[str, Any], say: Callable[[Mapping[str, Any]], None]
    ) -> None:
        self._request = request
        self._say = say
        self._toolchain = toolchain_of(*request["machine"])
        self._options = self._toolchain.options(request["options"])
        self._stages = self._toolchain.stages(self._options, gluon=request.get("gluon", False))
        self.metadata: dict[str, Any] = dict(self._options.__dict__)
        self.seconds: dict[str, float] = {}

    @property
    def last_stages(self) -> tuple[str, str]:
        """Return the names of the stages of the assembly's text and of the machine code."""
        return ("amdgcn", "hsaco") if "amdgcn" in self._stages else ("ptx", "cubin")

    def stage(self, name: str, module: Any) -> Any:
        """Run one of the compiler's stages; return its output or the failure."""
        return self._timed(name, lambda: self._stages[name](module, self.metadata))

    def parse(self, stage: str, text: str) -> Any:
        """Parse a text of Triton's IR; return the module or the failure."""
        return guarded(stage, lambda: self._toolchain.parse(text))

    def ttgir(self) -> Any:
        """Run the request's module up to the stage "ttgir", or return the failure."""
        names = [name for name in MLIR if name in self._stages]  # Gluon's begin at "ttgir"
        module: Any = self.parse(names[0], self._request["ttir"])
        for name in names:
            if isinstance(module, Failure):
                return module
            module = self.stage(name, module)
        return module

    def allocate(self, module: Any) -> dict[str, int] | Failure:
        """Return what a TTGIR module takes of the SM, or the failure; change the module."""
        allocated: dict[str, int] | Failure = self._timed(
            "allocate", lambda: self._toolchain.allocate(module, self._options)
        )
        return allocated

    def _timed(self, name: str, work: Callable[[], Any]) -> Any:
        self._say({"stage": name})
        start = time.perf_counter()
        result = guarded(name, work)
        self.seconds[name] = round(time.perf_counter() - start, 6)
        return result


@cache
def toolchain_of(backend: str, arch: int | str, warp_size: int) -> Toolchain:
    """Return the compiler for a machine, made once."""
    return Toolchain(backend, arch, warp_size)


MLIR: Final = ("ttir", "ttgir")
"""Stages whose output is a module of Triton's own IR."""

_FROM_TTGIR: Final = ("llir", "ptx")


def apply_override(
    override: Override, compiled: Mapping[str, str], metadata: Mapping[str, Any], run: StageRun
) -> dict[str, str] | Failure:
    """Compile a hand-edited file in the place of a stage's output, to TTGIR and PTX.

    Args:
        override: the file.
        compiled: the compiler's TTGIR and PTX.
        metadata: the metadata after the compiler's TTGIR.
        run: the config's stages; its metadata becomes that of the launch.
    """
    module: Any = override.text
    ttgir, left = compiled["ttgir"], STAGES[STAGES.index(override.stage) + 1 :]
    if override.stage in MLIR:
        # The stages from here on write their metadata again, for the file.
        run.metadata.clear()
        run.metadata.update(metadata)
        module, left = ttgir_of(override, run), _FROM_TTGIR
        ttgir = str(module)
    for stage in left:
        if isinstance(module, Failure):
            return module
        module = run.stage(stage, module)
    if isinstance(module, Failure):
        return module
    misfit = ptx_misfit(module, compiled["ptx"])
    return misfit or {"ttgir": ttgir, "ptx": module}


def ttgir_of(override: Override, run: StageRun) -> Any:
    """Return the TTGIR module of a file of Triton's IR, or the failure."""
    module = run.parse(override.stage, override.text)
    if override.stage == "ttgir" or isinstance(module, Failure):
        return module
    return run.stage("ttgir", module)


def ptx_misfit(ptx: str, compiled_ptx: str) -> Failure | None:
    """Return why edited PTX cannot be launched as the kernel's; None if it can."""
    (kernel,) = entries(compiled_ptx)
    by_name = {entry.name: entry for entry in entries(ptx)}
    if kernel.name not in by_name:
        names = ", ".join(by_name) or "none"
        return _refused(f"it has no entry {kernel.name}, the kernel's; its entries: {names}")
    reason = by_name[kernel.name].misfit(kernel)
    return None if reason is None else _refused(f"its entry {kernel.name} {reason}")


def _refused(text: str) -> Failure:
    return Failure("ptx", "override", text)


_MAXNREG_ATTRIBUTE: Final = re.compile(r"ttg\.maxnreg = \d+ : i32(, )?")
_OPENS_MODULE: Final = re.compile(r'^module attributes \{(?="?([\w.\-]+))', re.MULTILINE)
# IR whose passes before LLVM read the cap: warps that share out registers, loads of tensor memory.
_READS_CAP: Final = re.compile(r"warp_specialize|tmem|tensor_memory")
_LINKED_FROM_PTX: Final = ("maxnreg", "num_stages")
_MEMO_SIZE: Final = 8
_NVIDIA_ONLY: Final = "hand-edited IR is for CUDA targets; take ir_override out"


class BackEnd:
    """Runs the stages after TTIR; LLVM only once for configs of the same PTX.

    `maxnreg` is one directive of the PTX, and `num_stages` changes nothing without a pipelined
    loop. If the TTGIR of two configs differs in the cap only, the second reuses the PTX of the
    first. LLVM, half of the time of a compile, then runs once.
    """

    def __init__(self, say: Callable[[Mapping[str, Any]], None] = lambda _: None) -> None:
        self._say = say
        self._memo: OrderedDict[str, tuple[str, str, dict[str, Any]]] = OrderedDict()
        self._sketched: tuple[str, dict[str, Any]] | None = None
        self._assembled: tuple[str, bytes] | None = None

    def build(self, request: Mapping[str, Any]) -> dict[str, Any] | Failure:
        """Compile a request to an artifact's JSON values, or a failure."""
        run = StageRun(request, self._say)
        outputs = self._outputs(request, run)
        if isinstance(outputs, Failure):
            return outputs
        assembly = run.last_stages[0]
        cubin = self._machine_code(outputs[assembly], request, run)
        if isinstance(cubin, Failure):
            return cubin
        return {
            "entry": run.metadata["name"],
            "outputs": {"ttir": request["ttir"], **outputs},
            "cubin": cubin,
            "metadata": _plain(run.metadata),
            "seconds": run.seconds,
        }

    def _machine_code(
        self, assembly: str, request: Mapping[str, Any], run: StageRun
    ) -> bytes | Failure:
        """Assemble a text, or take the last one's machine code if it is of an equal text.

        Without a pipelined loop the configs of a family differ in nothing else than `num_stages`.
        """
        options = {k: v for k, v in request["options"].items() if k not in _LINKED_FROM_PTX}
        key = assembly + json.dumps([options, request.get("compiler")], sort_keys=True)
        if self._assembled is None or self._assembled[0] != key:
            metadata = set(run.metadata)
            code: bytes | Failure = run.stage(run.last_stages[1], assembly)
            if isinstance(code, Failure) or set(run.metadata) != metadata:
                return code
            self._assembled = key, code
        return self._assembled[1]

    def _outputs(self, request: Mapping[str, Any], run: StageRun) -> dict[str, str] | Failure:
        """Compile a request to its stages' texts, with its hand-edited file, or a failure."""
        assembly, override = run.last_stages[0], request.get("override")
        if override is not None and assembly != "ptx":
            return Failure(override["stage"], "override", _NVIDIA_ONLY)
        uncapped, cap = request.get("uncapped"), request["options"].get("maxnreg")
        if uncapped is not None and _is_capped_alike(uncapped["ttgir"]):
            capped = _capped(uncapped, cap)
            run.metadata.update(capped["metadata"])
            llir = _llir_with_cap(uncapped["llir"], cap)
            ptx = _with_cap(uncapped["ptx"], cap)
            return {"ttgir": capped["ttgir"], "llir": llir, "ptx": ptx}
        module = run.ttgir()
        if isinstance(module, Failure):
            return module
        ttgir, metadata = str(module), dict(run.metadata)
        lowered = self._assembly(ttgir, module, request["options"], run)
        if isinstance(lowered, Failure):
            return lowered
        llir, text = lowered
        outputs = {"ttgir": ttgir, "llir": llir, assembly: text}
        if override is None:
            return outputs
        return apply_override(Override(**override), outputs, metadata, run)

    def sketch(self, request: Mapping[str, Any]) -> dict[str, Any] | Failure:
        """Compile a request as far as LLVM, or return the failure.

        `maxnreg` is one attribute of the module, so the sketch of a config serves another that
        differs in it alone.
        """
        options = {**request["options"], "maxnreg": None}
        seen = [request["ttir"], options, request["machine"], request.get("override")]
        key = json.dumps(seen, sort_keys=True)
        if self._sketched is not None and self._sketched[0] == key:
            return _capped(self._sketched[1], request["options"].get("maxnreg"))
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
        return {"ttgir": ttgir, "metadata": _plain({**run.metadata, **allocated})}

    def _assembly(
        self, ttgir: str, module: Any, options: Mapping[str, Any], run: StageRun
    ) -> tuple[str, str] | Failure:
        """Compile a module to LLVM's IR and assembly, or take those of an equal one."""
        # Warp specialisation divides registers among warps by the cap; AMD's scheduling hints
        # read the stages.
        shareable = (
            "ttg.warp_specialize" not in ttgir and options.get("schedule_hint", "none") == "none"
        )
        rest = {k: v for k, v in options.items() if k not in _LINKED_FROM_PTX}
        key = _MAXNREG_ATTRIBUTE.sub("", ttgir) + json.dumps(rest, sort_keys=True)
        if shareable and key in self._memo:
            known_llir, known_ptx, metadata_of_llvm = self._memo[key]
            self._memo.move_to_end(key)
            run.metadata.update(metadata_of_llvm)
            cap = options.get("maxnreg")
            return _llir_with_cap(known_llir, cap), _with_cap(known_ptx, cap)
        before = set(run.metadata)
        llir = run.stage("llir", module)
        name = run.last_stages[0]
        ptx: str | Failure = llir if isinstance(llir, Failure) else run.stage(name, llir)
        if isinstance(ptx, Failure):
            return ptx
        if shareable:
            metadata_of_llvm = {k: v for k, v in run.metadata.items() if k not in before}
            bare = _llir_with_cap(llir, None), _with_cap(ptx, None)
            self._memo[key] = (*bare, metadata_of_llvm)
            while len(self._memo) > _MEMO_SIZE:
                self._memo.popitem(last=False)
        return llir, ptx


def _plain(metadata: Mapping[str, Any]) -> dict[str, Any]:
    """Return metadata as it is read from disk again: JSON values."""
    plain: dict[str, Any] = json.loads(json.dumps(metadata, default=str))
    return plain


def _with_cap(ptx: str, maxnreg: int | None) -> str:
    """Replace or remove the PTX's `.maxnreg` directive."""
    bare = re.sub(r"^\.maxnreg \d+\n", "", ptx, count=1, flags=re.MULTILINE)
    if maxnreg is None:
        return bare
    return re.sub(
        r"^(\.reqntid [^\n]*\n)", rf"\1.maxnreg {maxnreg}\n", bare, count=1, flags=re.MULTILINE
    )


def _llir_with_cap(llir: str, maxnreg: int | None) -> str:
    """Replace or remove the attribute of the kernel's function that holds the cap."""
    bare = re.sub(r'"nvvm\.maxnreg"="\d+" ', "", llir, count=1)
    if maxnreg is None:
        return bare
    return re.sub(r'("nvvm\.reqntid"=)', rf'"nvvm.maxnreg"="{maxnreg}" \1', bare, count=1)


def _is_capped_alike(ttgir: str) -> bool:
    """Return whether another cap would change only the module's first attribute."""
    first = _OPENS_MODULE.search(ttgir)
    return first is not None and first[1] >= "ttg.maxnreg" and not _READS_CAP.search(ttgir)


def _capped(sketch: Mapping[str, Any], maxnreg: int | None) -> dict[str, Any]:
    """Replace or remove the register cap of a sketch."""
    bare = _MAXNREG_ATTRIBUTE.sub("", sketch["ttgir"], count=1)
    cap = "" if maxnreg is None else f"ttg.maxnreg = {maxnreg} : i32, "
    ttgir = _OPENS_MODULE.sub(lambda opens: opens[0] + cap, bare, count=1)
    return {"ttgir": ttgir, "metadata": {**sketch["metadata"], "maxnreg": maxnreg}}
