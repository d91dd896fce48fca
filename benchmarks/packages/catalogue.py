"""The programs that are run, and the ways of running each."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final

FOLDER: Final = Path(__file__).parent / "programs"


@dataclass(frozen=True)
class Program:
    """A program that uses one package.

    Attributes:
        name: name of its file in `programs/`, which knows nothing of asmtune.
        distribution: the package's name on PyPI.
        operations: operations that it runs, in this order.
    """

    name: str
    distribution: str
    operations: tuple[str, ...]

    @property
    def path(self) -> Path:
        """Give its file."""
        return FOLDER / f"{self.name}.py"


@dataclass(frozen=True)
class Way:
    """A way of running a program, in a process of its own.

    Attributes:
        name: name in the results.
        command: arguments between the interpreter and the program's file.
        caches: ways of one name share all their caches; the first of them finds them empty.
    """

    name: str
    command: tuple[str, ...]
    caches: str


PROGRAMS: Final = (
    Program("linear_attention", "fla-core", ("gla", "gated_delta_rule")),
    Program("liger", "liger-kernel", ("dyt", "mlp", "moe")),
    Program("gems", "flag-gems", ("layer_norm", "cross_entropy", "bmm")),
    Program("low_bit", "gemlite", ("token", "batch", "prompt")),
    Program("state_space", "mamba-ssm", ("scan", "gated_norm")),
    Program("cut_loss", "cut-cross-entropy", ("cut_cross_entropy",)),
    Program("quantise", "torchao", ("tensorwise", "experts")),
)

_ASMTUNE: Final = ("-m", "asmtune", "run")
PLAIN: Final = Way("plain", (), "plain")
FRESH: Final = Way("asmtune", _ASMTUNE, "asmtune")
WARM: Final = Way("asmtune_warm", _ASMTUNE, "asmtune")
WAYS: Final = (PLAIN, FRESH, WARM)
"""Ways that are run, in this order."""
