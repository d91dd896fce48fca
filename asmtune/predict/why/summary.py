"""Everything that is said about why a config takes its time: accesses, findings, layouts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from asmtune.base.errors import ParseError
from asmtune.core.hardware.model import Target
from asmtune.core.problem import Problem
from asmtune.core.records.artifacts import Artifact
from asmtune.core.records.verdicts import Verdict
from asmtune.ir.ttir.analysis import LaunchArguments
from asmtune.ir.ttir.parser import well_formed
from asmtune.ir.ttir.work import Work
from asmtune.predict.features.profile import Profile
from asmtune.predict.why.access import AccessPattern, KernelAccesses
from asmtune.predict.why.conversion import Conversion, conversions
from asmtune.predict.why.findings import ExaminedConfig, Finding, find


@dataclass(frozen=True)
class Why:
    """Accesses by line, findings with advice, and layouts that would be faster.

    `failure` says why the TTGIR cannot be read; it is empty otherwise.
    """

    accesses: tuple[AccessPattern, ...] = ()
    findings: tuple[Finding, ...] = ()
    layouts: tuple[Conversion, ...] = ()
    failure: str = ""

    def document(self) -> dict[str, Any]:
        """Return it as JSON values."""
        return {
            "accesses": [_access(one) for one in self.accesses],
            "findings": [
                {
                    "kind": one.kind,
                    "line": one.line,
                    "text": one.text,
                    "cost_us": one.cost_us,
                    "advice": [advice.verdict.config.to_dict() for advice in one.advice],
                }
                for one in self.findings
            ],
            "layouts": [_layout(one) for one in self.layouts],
            "failure": self.failure or None,
        }


def _access(one: AccessPattern) -> Mapping[str, Any]:
    return {
        "line": one.line,
        "file": one.file,
        "kind": one.kind,
        "argument": one.argument,
        "pattern": one.pattern,
        "stride_bytes": one.stride_bytes,
        "sectors_asked": one.asked,
        "sectors_used": one.used,
        "tile_share": one.tile_share,
        "by": one.by,
        "index_lines": list(one.sources),
        "bytes_a_program": one.bytes,
        "text": str(one),
    }


def _layout(one: Conversion) -> Mapping[str, Any]:
    return {
        "argument": one.argument,
        "line": one.line,
        "stride_bytes": one.stride_bytes,
        "element_bytes": one.element_bytes,
        "before_us": one.before_us,
        "after_us": one.after_us,
        "moved_bytes": one.moved_bytes,
        "cost_us": one.cost_us,
        "launches": None if one.written else one.launches,
        "text": str(one),
    }


@dataclass(frozen=True)
class CompiledLaunch:
    """A compiled config in one launch: what the reasons are read from."""

    artifact: Artifact
    profile: Profile
    work: Work
    problem: Problem
    target: Target


def reasons(launch: CompiledLaunch, verdict: Verdict, others: Sequence[Verdict]) -> Why | None:
    """Say why a config takes its time; the advice is taken from `others`.

    Return None for a config without features, or of a kernel whose work could not be read.

    Raises:
        ProblemError: the grid of the config is invalid.
    """
    if verdict.features is None or not launch.work.accesses:
        return None
    problem, config, target = launch.problem, verdict.config, launch.target
    if target.backend != "cuda":
        return Why(failure=f"the layouts of {target.arch}'s TTGIR are not read")
    call = LaunchArguments(
        arguments=problem.bind(config),
        grid=launch.work.grid,
        tensor_bytes=problem.tensor_bytes,
        processors=target.sms,
    )
    try:
        with well_formed():
            accesses = KernelAccesses(launch.artifact, call, launch.work, target)
            own = ExaminedConfig(verdict, verdict.features, accesses, others)
            return Why(accesses.patterns, find(own), conversions(own, launch.profile))
    except ParseError as error:
        return Why(failure=str(error))
