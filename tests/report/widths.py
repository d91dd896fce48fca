"""Reports at the widths of terminals: rendered, compared with committed text, and held whole."""

from __future__ import annotations

import io
import json
import re
import sys
from collections.abc import Iterable
from pathlib import Path

from rich.cells import cell_len
from rich.console import Console

from asmtune.base.json_codec import JsonCodec
from asmtune.core.config import Config
from asmtune.core.records.verdicts import Features, PruneReport
from asmtune.report.tables import prune_table

GOLDEN = Path(__file__).parent / "golden"
SAVED = ("one", "targets", "axes")
"""Saved reports: one target, three targets, and a kernel with axes of long names."""

WIDTHS = (60, 80, 120, 200)

WIDEST = 100_000


_CODEC = JsonCodec(
    decoders={
        Config: lambda value, _: Config.from_dict(value),
        Features: lambda value, _: Features(value),
    }
)


def reports_of(name: str) -> list[PruneReport]:
    """Read the reports of a document."""
    document = json.loads((GOLDEN / f"{name}.json").read_text(encoding="utf-8"))
    return [_CODEC.read(PruneReport, one, "report") for one in document["reports"]]


def rendered(renderable: object, width: int) -> str:
    """Render as a terminal of so many columns shows it, without colours."""
    text = io.StringIO()
    Console(file=text, width=width, color_system=None).print(renderable)
    return "\n".join(line.rstrip() for line in text.getvalue().splitlines()) + "\n"


def saved_report(name: str, width: int) -> str:
    """Render a saved report."""
    return rendered(prune_table(reports_of(name)), width)


def golden_path(name: str, width: int) -> Path:
    """The committed text of a saved report at a width."""
    return GOLDEN / f"{name}_{width}.txt"


def words_of(text: str) -> set[str]:
    """The names and figures of a text, names in their parts, without lines of tables."""
    bare = re.sub(r"[│┃━╇┼─]", " ", text)
    return {part for word in bare.split() for part in parts_of(word.strip(":;,"))}


def parts_of(name: str) -> list[str]:
    """Parts of a name, which a heading may put in lines of their own."""
    return re.split(r"(?<=_)(?=\w)", name)


def assert_whole(renderable: object, width: int, shown: Iterable[str] = ()) -> str:
    """Hold a rendering to cut nothing: every word is in the widest rendering too.

    What must be shown at every width is in `shown`.
    """
    text, full = rendered(renderable, width), rendered(renderable, WIDEST)
    assert "…" not in text
    assert max(map(cell_len, text.splitlines()), default=0) <= width, text
    known = words_of(full) | {"left", "out", "at", "columns", "show", "all"}
    unknown = {word for word in words_of(text) - known if not re.fullmatch(r"\d+|On", word)}
    assert not unknown, text
    missing = {part for word in shown for part in parts_of(word)} - words_of(text)
    assert not missing, text
    return text


def main() -> None:
    """Write the committed texts anew: python tests/report/widths.py."""
    for name in SAVED:
        for width in WIDTHS:
            golden_path(name, width).write_text(saved_report(name, width), encoding="utf-8")
            sys.stdout.write(f"{golden_path(name, width).name}\n")


if __name__ == "__main__":
    main()
