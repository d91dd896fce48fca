"""The back end: runs the compiler's stages after TTIR in a child process, and shares their work.

Each stage is announced before it begins, so that the parent knows which one did not return.
"""

from __future__ import annotations

import json
import time
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


_NVIDIA_ONLY: Final = "hand-edited IR is for CUDA targets; take ir_override out"


class BackEnd:
    """Runs the stages after TTIR; LLVM and the assembler once for configs in a row of equal TTGIR.

    Without a pipelined loop `num_stages` changes nothing in it.
    """

    def __init__(self, say: Callable[[Mapping[str, Any]], None] = lambda _: None) -> None:
        self._say = say
        self._last: tuple[str, dict[str, str], bytes, dict[str, Any]] | None = None

    def build(self, request: Mapping[str, Any]) -> dict[str, Any] | Failure:
        """Compile a request to an artifact's JSON values, or a failure."""
        run = StageRun(request, self._say)
        made = self._code(request, run)
        if isinstance(made, Failure):
            return made
        outputs, cubin = made
        return {
            "entry": run.metadata["name"],
            "outputs": {"ttir": request["ttir"], **outputs},
            "cubin": cubin,
            "metadata": _plain(run.metadata),
            "seconds": run.seconds,
        }

    def _code(
        self, request: Mapping[str, Any], run: StageRun
    ) -> tuple[dict[str, str], bytes] | Failure:
        """Compile a request to the texts of its stages and its machine code, or a failure."""
        override, (assembly, binary) = request.get("override"), run.last_stages
        if override is not None and assembly != "ptx":
            return Failure(override["stage"], "override", _NVIDIA_ONLY)
        module = run.ttgir()
        if isinstance(module, Failure):
            return module
        ttgir, metadata = str(module), dict(run.metadata)
        key = f"{ttgir}{_rest(request)}"
        if override is None and self._last is not None and self._last[0] == key:
            _, outputs, cubin, changed = self._last
            run.metadata.update(changed)
            return outputs, cubin
        outputs = {"ttgir": ttgir}
        for name in ("llir", assembly):
            module = run.stage(name, module)
            if isinstance(module, Failure):
                return module
            outputs[name] = module
        if override is not None:
            edited = apply_override(Override(**override), outputs, metadata, run)
            if isinstance(edited, Failure):
                return edited
            outputs = edited
        cubin = run.stage(binary, outputs[assembly])
        if isinstance(cubin, Failure):
            return cubin
        if override is None:
            known = metadata.items()
            changed = {
                name: value for name, value in run.metadata.items() if (name, value) not in known
            }
            self._last = key, outputs, cubin, changed
        return outputs, cubin

    def sketch(self, request: Mapping[str, Any]) -> dict[str, Any] | Failure:
        """Compile a request as far as LLVM, or return the failure."""
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


def _rest(request: Mapping[str, Any]) -> str:
    """Return a text of what LLVM and the assembler read beside the TTGIR."""
    options = dict(request["options"])
    if options.get("schedule_hint", "none") == "none":  # AMD's hints read the stages
        options.pop("num_stages", None)
    return json.dumps([options, request.get("compiler")], sort_keys=True)


def _plain(metadata: Mapping[str, Any]) -> dict[str, Any]:
    """Return metadata as it is read from disk again: JSON values."""
    plain: dict[str, Any] = json.loads(json.dumps(metadata, default=str))
    return plain
