"""The code of a config that was compiled, as a reader sees it."""

from __future__ import annotations

from asmtune.base.errors import ParseError
from asmtune.compile.disassembly import disassemble
from asmtune.core.config import Config
from asmtune.core.hardware.model import Target
from asmtune.core.problem import Problem
from asmtune.core.records.artifacts import Artifact, Failure
from asmtune.ir.asm.ptx import parse_ptx
from asmtune.ir.asm.sass import parse_sass, relocated
from asmtune.ir.ttir.work import Work
from asmtune.predict.features.execution import SegmentRun, executions
from asmtune.predict.features.reader import ProfileReader
from asmtune.predict.prune.front import Judge
from asmtune.report.code.model import CodeView
from asmtune.report.code.views import ptx_view, sass_view


class CodeReader:
    """Reads artifacts of one problem on one target; what configs share is read once.

    Args:
        problem: the launch.
        target: the machine.
    """

    def __init__(self, problem: Problem, target: Target) -> None:
        self._judge = Judge(problem, target, {})
        self._read = ProfileReader(target)

    def ptx(self, config: Config, artifact: Artifact) -> CodeView:
        """The PTX of a config.

        Raises:
            ParseError: the artifact is damaged.
            ProblemError: the grid of the config is none.
        """
        text = artifact.outputs["ptx"]
        return ptx_view(text, parse_ptx(text), self.runs(config, artifact))

    def sass(self, config: Config, artifact: Artifact) -> CodeView | Failure:
        """The SASS of a config, or why it cannot be shown.

        Raises:
            ParseError: the artifact is damaged.
            ProblemError: the grid of the config is none.
        """
        text = disassemble(artifact.cubin)
        if isinstance(text, Failure):
            return text
        try:
            listing = parse_sass(text)
        except ParseError as error:
            return Failure("sass", "parse", str(error))
        ptx = parse_ptx(artifact.outputs["ptx"])
        placed = relocated(listing, ptx)
        return sass_view(text, placed, ptx.entry, self.runs(config, artifact))

    def runs(self, config: Config, artifact: Artifact) -> tuple[SegmentRun, ...]:
        """How often one program runs each segment of the PTX, as the features have it."""
        return executions(self._read(artifact), self._work(config, artifact))

    def guesses(self, config: Config, artifact: Artifact) -> tuple[str, ...]:
        """What counts and predicted times rest on that could not be evaluated, a phrase each.

        Raises:
            ProblemError: the grid of the config is none.
        """
        return tuple(map(str, self._work(config, artifact).assumptions))

    def _work(self, config: Config, artifact: Artifact) -> Work:
        return self._judge.work(config, artifact.outputs["ttir"])
