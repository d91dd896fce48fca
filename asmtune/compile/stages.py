"""The compiler's stages in the child, one after another, each announced and timed."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

from asmtune.compile.toolchain import Toolchain
from asmtune.core.failures import guarded
from asmtune.core.records.artifacts import Failure


class StageRun:
    """The stages of one request, each announced before it begins and timed.

    Attributes:
        metadata: Triton's own, filled by the stages.
        seconds: by stage.
    """

    def __init__(
        self, request: Mapping[str, Any], say: Callable[[Mapping[str, Any]], None]
    ) -> None:
        self._request = request
        self._say = say
        self._toolchain = toolchain_of(*request["machine"])
        self._options = self._toolchain.options(request["options"])
        self._stages = dict(self._toolchain.stages(self._options))
        self.metadata: dict[str, Any] = dict(self._options.__dict__)
        self.seconds: dict[str, float] = {}

    def stage(self, name: str, module: Any) -> Any:
        """The output of one of the compiler's stages, or the failure."""
        return self._timed(name, lambda: self._stages[name](module, self.metadata))

    def parse(self, stage: str, text: str) -> Any:
        """The module of a text of Triton's IR, or the failure."""
        return guarded(stage, lambda: self._toolchain.parse(text))

    def ttgir(self) -> Any:
        """The request's module after the stage "ttgir", or the failure."""
        module: Any = self.parse("ttir", self._request["ttir"])
        for name in ("ttir", "ttgir"):
            if isinstance(module, Failure):
                return module
            module = self.stage(name, module)
        return module

    def allocate(self, module: Any) -> dict[str, int] | Failure:
        """What a TTGIR module takes of the SM, or the failure; the module is lowered."""
        found: dict[str, int] | Failure = self._timed(
            "allocate", lambda: self._toolchain.allocate(module, self._options)
        )
        return found

    def _timed(self, name: str, work: Callable[[], Any]) -> Any:
        self._say({"stage": name})
        start = time.perf_counter()
        result = guarded(name, work)
        self.seconds[name] = round(time.perf_counter() - start, 6)
        return result


@cache
def toolchain_of(backend: str, arch: int, warp_size: int) -> Toolchain:
    """The compiler for a machine, made once."""
    return Toolchain(backend, arch, warp_size)
