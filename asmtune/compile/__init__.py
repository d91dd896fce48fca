"""Compiling configs: parallel, without a GPU, each within limits.

The only package that knows Triton's compiler. A compile is split in two:

    front end   in this process    kernel source + config  -> TTIR     (lower)
    back end    in a child         TTIR -> TTGIR -> PTX -> cubin       (child)
    sketch      in a child         TTIR -> TTGIR, and no further       (child)

TTIR is self-contained text, so that a child never imports the user's code:
kernels of notebooks, closures and `__main__` compile like any other. It does
not depend on warps, stages or registers, so that it is made once for all
configs that share their constexprs.

Workers are joblib's: this machine's, or those that `joblib.parallel_config` names
in the thread that begins (workers). What a worker makes where this process cannot
read it comes back with the outcome (worker, artifacts).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from asmtune.lazy import loader

if TYPE_CHECKING:
    from asmtune.compile.artifacts import ArtifactCache as ArtifactCache
    from asmtune.compile.disassembly import disassemble as disassemble
    from asmtune.compile.lower import Lowering as Lowering
    from asmtune.compile.lower import Request as Request
    from asmtune.compile.pool import Hooks as Hooks
    from asmtune.compile.pool import compile_configs as compile_configs
    from asmtune.compile.pool import compile_one as compile_one
    from asmtune.compile.pool import sketch_configs as sketch_configs
    from asmtune.compile.pool import sketch_one as sketch_one
    from asmtune.compile.pool import warm as warm
    from asmtune.compile.standin import ArtifactWarning as ArtifactWarning
    from asmtune.compile.worker import Compiled as Compiled
    from asmtune.compile.workers import Workers as Workers

__all__ = [
    "ArtifactCache",
    "ArtifactWarning",
    "Compiled",
    "Hooks",
    "Lowering",
    "Request",
    "Workers",
    "compile_configs",
    "compile_one",
    "disassemble",
    "sketch_configs",
    "sketch_one",
    "warm",
]

_HOMES: Final = {
    "ArtifactCache": "artifacts",
    "ArtifactWarning": "standin",
    "Compiled": "worker",
    "Hooks": "pool",
    "Lowering": "lower",
    "Request": "lower",
    "Workers": "workers",
    "compile_configs": "pool",
    "compile_one": "pool",
    "disassemble": "disassembly",
    "sketch_configs": "pool",
    "sketch_one": "pool",
    "warm": "pool",
}

__getattr__ = loader(__name__, _HOMES)
