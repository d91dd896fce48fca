"""One config in detail: its verdict, its numbers, its hottest loop."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Group, RenderableType
from rich.syntax import Syntax
from rich.table import Table
from rich.text import Text

from asmtune.asm import Counts, OpClass, Program, hottest_loop
from asmtune.features.registry import FEATURES, Reading
from asmtune.records import PruneReport, Verdict
from asmtune.score.roofline import ADVICE


def explanation(report: PruneReport, verdict: Verdict, reading: Reading | None) -> Group:
    """What `asmtune explain` shows.

    Args:
        report: of the whole space.
        verdict: of the config.
        reading: its parsed assembly; None where it did not compile.
    """
    parts: list[RenderableType] = [_verdict_line(report, verdict)]
    parts += [Text(f"  {reason}") for reason in verdict.reasons]
    if verdict.bottleneck is not None and verdict.predicted_us is not None:
        parts.append(_prediction(verdict.predicted_us, verdict.bottleneck))
    if verdict.failure is not None:
        parts.append(Text(verdict.failure.detail.strip(), "dim"))
    if reading is not None:
        parts += [_resources(reading), _counts(reading.counts)]
        parts += _hot_loop(reading)
    return Group(*parts)


def _verdict_line(report: PruneReport, verdict: Verdict) -> Text:
    ranked = sum(v.rank is not None for v in report.verdicts)
    place = f"rank {verdict.rank} of {ranked} by {report.scorer}" if verdict.rank else "not ranked"
    fate = "kept" if verdict.kept else f"dropped at {verdict.dropped_at}"
    return Text.assemble(
        (str(verdict.config), "bold"), f"\non {report.target}: ", (fate, "bold"), f", {place}"
    )


def _prediction(us: float, bottleneck: str) -> Text:
    first, second = ADVICE[bottleneck]
    return Text.assemble(
        f"predicted {us:.1f} us, limited by ",
        (bottleneck, "bold"),
        f"\n  try: {first}\n  or:  {second}",
    )


def _resources(reading: Reading) -> Table:
    table = Table(title="Resources", title_justify="left", show_edge=False, show_header=False)
    table.add_column(justify="right")
    table.add_column()
    for feature in FEATURES.values():
        if feature.group in ("resources", "occupancy"):
            table.add_row(f"{feature.read(reading):g}", feature.meaning)
    table.add_row(reading.occupancy.limiter, "What allows no further program on an SM.")
    return table


def _counts(counts: Counts) -> Table:
    depths = sorted(counts.instructions)
    table = Table(title="Instructions by loop depth", title_justify="left", show_edge=False)
    table.add_column("class")
    for depth in depths:
        table.add_column(f"depth {depth}", justify="right")
    for kind in OpClass:
        row = counts.by_class.get(kind, {})
        if row:
            table.add_row(kind.value.replace("_", " "), *(str(row.get(d, "")) for d in depths))
    table.add_section()
    table.add_row("all", *(str(counts.instructions[depth]) for depth in depths))
    if counts.unknown:
        names = ", ".join(f"{name} ({n})" for name, n in counts.unknown.items())
        table.caption = f"unknown: {names}"
    return table


def _hot_loop(reading: Reading) -> Sequence[RenderableType]:
    loop = hottest_loop(reading.program)
    if loop is None:
        return [Text("It has no loop.")]
    text = loop_text(reading.program, reading.artifact.outputs["ptx"], loop.blocks)
    count = sum(len(reading.program.body(block)) for block in loop.blocks)
    title = f"Hottest loop: depth {loop.depth}, {count} instructions"
    return [
        Text(title, "italic"),
        Syntax(text, "text", theme="ansi_dark", background_color="default"),
    ]


def loop_text(program: Program, ptx: str, blocks: Sequence[int]) -> str:
    """The PTX lines of a loop's blocks, with their labels."""
    lines, shown = ptx.splitlines(), []
    for block in blocks:
        if label := program.blocks[block].label:
            shown.append(f"{label}:")
        numbers = dict.fromkeys(item.line for item in program.body(block))
        shown += [lines[number - 1].replace("\t", "    ").rstrip() for number in numbers]
    return "\n".join(shown)
