"""Register caps derived from artifacts: those at which one more program fits on an SM.

Registers limit a config where shared memory, warps and blocks would allow more programs. A lower
`maxnreg` makes room for one, at the price of spills if it is too low. Derived configs are
compiled and ranked like all others, so the scorer decides where a cap pays.

The bounds are from recordings on an H200 (51 tasks of the oracle and 11 of three more kernels).
In them 3,109 capped configs of this kind were timed beside the same config without a cap: 855 are
within all bounds, 263 of them more than 3% faster.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

from asmtune.compile.artifacts import ArtifactCache
from asmtune.core.config import Config
from asmtune.core.hardware.model import Target
from asmtune.core.occupancy import register_cap_for
from asmtune.core.records.artifacts import Artifact
from asmtune.core.records.verdicts import Features, Reason, Verdict
from asmtune.ir.ttir.parser import parse_ttir
from asmtune.ir.ttir.tree import build_tree
from asmtune.predict.features.sketch.layouts import read_aliases
from asmtune.predict.features.sketch.values import Values
from asmtune.predict.score.scorer import Candidate, Scorer

RULE: Final = "derived_cap"
"""Name of the remark that marks a derived cap."""

LEAST_SHARE: Final = 0.6
"""A cap's least share of the registers that its config takes without one.

Of 1,417 recorded caps below it, 26 made their config more than 3% faster, and none came within
5% of its task's best config; of 1,692 above it 286 did, and 12.
"""

BEST_SHARE: Final = 0.25
"""Share of the configs that can run, best first, whose caps are worth a compile."""

MOST: Final = 32
"""Derived configs at most: a compile each, though those of one tile share their PTX."""


@dataclass(frozen=True)
class CapSource:
    """Target, scorer of the parents, and cached artifacts that caps are derived with."""

    target: Target
    scorer: Scorer
    cache: ArtifactCache


def with_caps(
    verdicts: Sequence[Verdict],
    source: CapSource,
    judge: Callable[[Sequence[Config]], Iterable[Verdict]],
) -> list[Verdict]:
    """Return the verdicts, then those on the caps derived from them, each with a remark.

    Nothing is derived if a config has a cap of its own: then the user chose the caps.
    """
    if any(verdict.config.maxnreg is not None for verdict in verdicts):
        return list(verdicts)
    derived = derived_caps(verdicts, source)
    judged = judge(list(derived)) if derived else ()
    remarked = (replace(v, reasons=(*v.reasons, derived[v.config])) for v in judged)
    return [*verdicts, *remarked]


def derived_caps(verdicts: Sequence[Verdict], source: CapSource) -> dict[Config, Reason]:
    """Return configs that add a `maxnreg` to a judged one, with the reason; best parents first."""
    running = [v for v in verdicts if v.kept and v.features is not None]
    candidates = [Candidate(v.config, source.target, features=v.features) for v in running]
    scores = source.scorer.score(candidates)
    best_first = sorted(range(len(running)), key=lambda i: -scores[i])
    parents = [running[index] for index in best_first[: math.ceil(len(running) * BEST_SHARE)]]
    return caps_for(parents, source, MOST)


def caps_for(parents: Iterable[Verdict], source: CapSource, most: int) -> dict[Config, Reason]:
    """Return at most `most` derived configs of chosen parents, with the reason, in their order.

    The parents are compiled, without a cap of their own, best first.
    """
    caps: dict[Config, Reason] = {}
    for verdict in parents:
        for config, reason in _of_one(verdict, source):
            if len(caps) == most:
                return caps
            caps[config] = reason
    return caps


def cap_notes(verdicts: Iterable[Verdict]) -> tuple[str, ...]:
    """Return a report's note on derived caps, if there are any."""
    count = sum(reason.rule == RULE for verdict in verdicts for reason in verdict.reasons)
    if not count:
        return ()
    return (
        f"configs added with a maxnreg at which one more program fits on an SM: {count}; "
        "caps=False (--no-caps) leaves them out",
    )


def caps_of(features: Features, target: Target) -> dict[int, int]:
    """Return caps of a config, loosest first, and the programs that fit at each.

    The result is empty where the launch has no further program to put on an SM, or where shared
    memory, warps or blocks allow none.
    """
    if target.backend != "cuda":
        return {}  # AMD's compiler takes no cap
    now = int(features["programs_per_sm"])
    if features["programs"] <= now * target.sms:
        # Of 694 recorded ones within the other bounds none came within 5% of its task's best.
        return {}
    warps, used = int(features["num_warps"]), int(features["regs_per_thread"])
    caps: dict[int, int] = {}
    for programs in range(now + 1, int(features["programs_per_sm_by_shared"]) + 1):
        cap = register_cap_for(target, warps, programs)
        if cap is None or cap < LEAST_SHARE * used:
            break
        if cap < used:
            caps[cap] = programs  # one cap may make room for several at once: the most
    return caps


_PRODUCTS: Final = frozenset({"tt.dot", "tt.dot_scaled", "ttng.warp_group_dot"})

# ptxas 12.8 and 13 name the least register target they accept: 42, 58, 90 and 154 for wgmma of
# N = 32, 64, 128 and 256, so N/2 accumulators and 26 more. mma.sync has no such limit, but 24 over
# the accumulators of five tiles on sm_80, 38 to 116 words a thread were spilled.
_BESIDES: Final = 26


def accumulator_registers(artifact: Artifact) -> int:
    """Return the registers a thread needs for the largest product: accumulators and 26 more.

    No register cap may go below this. Products that are alive together, as two in an attention
    loop are, need more. The result is 0 without a product, and where tcgen05 keeps all results in
    tensor memory.
    """
    ttgir = artifact.outputs["ttgir"]
    tree = build_tree(parse_ttir(ttgir))
    values = Values(tree, read_aliases(ttgir), int(artifact.metadata["num_warps"]))
    results = [node.results[0] for node in tree.nodes() if node.name in _PRODUCTS]
    held = (values.layout(one).elements * values.kind(one).bits for one in results)
    return max(math.ceil(bits / 32) for bits in held) + _BESIDES if results else 0


def _of_one(verdict: Verdict, source: CapSource) -> Iterator[tuple[Config, Reason]]:
    features, config = verdict.features, verdict.config
    # A hand-edited file states its own register limit.
    edited = config.ir_override is not None
    caps = {} if features is None or edited else caps_of(features, source.target)
    artifact = source.cache.get(verdict.artifact or "") if caps else None
    if features is None or not isinstance(artifact, Artifact):
        return
    needed = accumulator_registers(artifact)
    used, now = features["regs_per_thread"], features["programs_per_sm"]
    for cap, programs in caps.items():
        if cap >= needed:
            text = (
                f"maxnreg {cap} makes room for {programs} programs on an SM; "
                f"without it {used:.0f} registers a thread leave room for {now:.0f}"
            )
            yield config.with_cap(cap), Reason(RULE, text)
