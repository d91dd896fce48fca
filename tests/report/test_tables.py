"""Reports as tables: what fell, what is kept, targets side by side."""

from __future__ import annotations

import io
from dataclasses import replace

from rich.console import Console
from test_documents import features, report

from asmtune.core.config import Config
from asmtune.core.records.verdicts import Reason, Selection, Verdict
from asmtune.report.tables import COLUMNS, prune_table


def shown(renderable: object, width: int = 200) -> str:
    """The text of a table."""
    text = io.StringIO()
    Console(file=text, width=width).print(renderable)
    return text.getvalue()


def cells(line: str) -> list[str]:
    """The cells of a table's row."""
    return [cell.strip() for cell in line.replace("┃", "│").split("│")]


def test_what_fell() -> None:
    """Candidates, losses by stage and reason, and what is kept stand in one table."""
    rows = [cells(line) for line in shown(prune_table([report()])).splitlines()]
    for row in (
        ["space", "candidates", "4"],
        ["rules", "threads", "-1"],
        ["compile", "kernel", "-1"],
        ["score", "rank", "-1"],
        ["kept", "by weights", "1"],
    ):
        assert row in rows
    assert "a note" in shown(prune_table([report()]))


def test_what_the_kept_are_worth() -> None:
    """Ranks kept, those on top, and the scorer's own error stand below the losses."""
    kept = Selection("auto", 1, 0.9876, 0.125, "weights on 9 tasks of 3 kernels recorded on a GPU")
    text = shown(prune_table([replace(report(), selection=kept)]))
    assert "H200: keep auto: 1 by rank; expected share of the best speed 0.988" in text
    assert "chance that the best is dropped 12%" in text
    assert "measured with weights on 9 tasks of 3 kernels" in text
    assert "not on this target" not in text
    text = shown(prune_table([replace(report(), selection=replace(kept, other_device="X1"))]))
    assert "best is dropped 12%, both measured on X1, not on this target" in text
    low = replace(kept, low_share=0.912)
    text = " ".join(shown(prune_table([replace(report(), selection=low)])).split())
    assert "best speed 0.988 (9 in 10: 0.91 or more), chance" in text
    fewer = replace(kept, keep="5%", ranks=0, expected_share=None, chance_dropped=None)
    text = shown(prune_table([replace(report(), selection=fewer)]))
    assert "keep 5%: 0 by rank, 1 more as the default" in text
    assert "the error of weights was never measured" in text
    assert "by rank" not in shown(prune_table([replace(report(), selection=None)]))


def test_what_was_compiled() -> None:
    """A budget of compiles, how many it left out, and that what is kept is of the rest."""
    left = Verdict(
        Config({"BLOCK": 4}),
        False,
        "sketch",
        reasons=(Reason("sketched_only", "x"),),
        predicted_us=3.0,
    )
    told = Selection("25%", 3, 0.9, 0.25, "weights on 9 tasks of 3 kernels recorded on a GPU")
    base = replace(report(), verdicts=(*report().verdicts, left), selection=replace(told, ranks=1))
    text = shown(prune_table([replace(base, compiled=told)]))
    assert "H200: compile 25%: 3 by rank before compiling, 1 sketched only; expected" in text
    came = "5 candidates: 1 ruled out, 1 failed to compile, 1 sketched only, 2 compiled"
    assert f"H200: {came}" in text
    assert "expected share of the best speed that was compiled 0.900" in text
    assert ["sketch", "sketched_only", "-1"] in [cells(line) for line in text.splitlines()]
    unknown = replace(told, expected_share=None, chance_dropped=None)
    text = shown(prune_table([replace(base, compiled=unknown)]))
    assert "the error of weights before compiling was never measured" in text
    other = replace(report("A100"), verdicts=(replace(report().verdicts[0], config=left.config),))
    assert "sketched only" in shown(prune_table([base, other]), 300)


def test_the_kept() -> None:
    """A kept config shows its axes, its rank and its numbers under their headings."""
    lines = [cells(line) for line in shown(prune_table([report()])).splitlines()]
    heading = next(line for line in lines if "regs" in line)
    row = dict(zip(heading, lines[lines.index(heading) + 2], strict=True))
    assert (row["BLOCK"], row["num_warps"], row["maxnreg"]) == ("64", "4", "32")
    assert (row["rank"], row["regs"], row["spills"], row["occ"]) == ("1", "32", "2", "0.50")
    assert {column[0] for column in COLUMNS} <= set(heading)


def test_an_axis_on_which_the_kept_agree() -> None:
    """Every axis that had several values is a column, and no other."""
    space = [(64, 1), (1024, 1), (64, 4), (1024, 4)]
    verdicts = [
        Verdict(Config({"BLOCK": block, "ROWS": 2}, num_warps=warps), kept=warps == 1)
        for block, warps in space
    ]
    for shown_rows in (1, 2):
        kept = [replace(v, kept=v.kept and i < shown_rows) for i, v in enumerate(verdicts)]
        text = shown(prune_table([replace(report(), verdicts=tuple(kept))]))
        heading = next(cells(line) for line in text.splitlines() if "pred us" in line)
        assert heading[: heading.index("rank")] == ["BLOCK", "num_warps"]


def test_several_targets() -> None:
    """Each target has its table; what one keeps has its rank or its reason on the other."""
    first, second = report(), report("A100")
    fallen = Verdict(
        Config({"BLOCK": 64}, maxnreg=32),
        kept=False,
        dropped_at="rules",
        reasons=(Reason("shared_memory", "too much"),),
    )
    better = Verdict(
        Config({"BLOCK": 128}), kept=True, rank=1, score=9.0, features=features(regs_per_thread=48)
    )
    second = replace(second, verdicts=(better, fallen))
    text = shown(prune_table([first, second]), 300)
    assert text.index("Kept on H200, best first") < text.index("Kept on A100, best first")
    lines = [cells(line) for line in text.splitlines()]
    heads = [number for number, line in enumerate(lines) if "rank" in line and "BLOCK" in line]
    ranks = [[row[lines[n].index("rank")] for row in lines[n + 2 : n + 4]] for n in heads]
    assert ranks == [["1", "(2)"], ["1", "shared_memory"]]


def test_the_assembly_that_is_counted() -> None:
    """Counts are of PTX, of AMD's devices of AMDGCN; a target that nothing describes has PTX."""
    named = {name: shown(prune_table([report(name)]), 300) for name in ("H200", "MI300X", "Voodoo")}
    told = {name: "AMDGCN" in text for name, text in named.items()}
    assert told == {"H200": False, "MI300X": True, "Voodoo": False}
