"""Memory that each step of the attention ladder allocates, over the number of keys.

    python -m benchmarks.ladder.memory

Needs no GPU: the bytes are computed, those of the tensors that a step's function allocates, on
tensors without memory. Writes docs/images/attention_memory.svg and the table of
docs/ladder_attention.md.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

import torch

from asmtune.report.figures import COLOURS, MARKERS, look, saved
from benchmarks.harness import between
from benchmarks.harness import table as markdown
from benchmarks.ladder import attention

if TYPE_CHECKING:
    from matplotlib.figure import Figure

HEADS: Final = 16
DIM: Final = 64
SIZES: Final = tuple(512 * n for n in range(1, 9))
DOCS = Path(__file__).parents[2] / "docs"
DOCUMENT, FIGURE = DOCS / "ladder_attention.md", DOCS / "images" / "attention_memory.svg"
BEGIN, END = "<!-- memory -->\n", "<!-- end of memory -->\n"
TITLE = f"Memory that a step allocates: {HEADS} heads of {DIM} in halves, as many queries as keys"
NAMES = {"v0": "v0 naive", "v1": "v1 fused", "v2": "v2 flash"}


def allocated(step: str, size: int, heads: int = HEADS, dim: int = DIM) -> int:
    """Count the bytes that a step allocates for `size` queries and keys, its result included."""
    q = torch.empty(heads, size, dim, dtype=torch.float16, device="meta")
    return sum(tensor.nbytes for tensor in attention.buffers(step, q, q).values())


def table() -> str:
    """Write the bytes of each step in MiB, a line a size."""
    heads = ("N", *NAMES.values())
    rows = [(str(n), *(f"{allocated(step, n) / 2**20:.1f}" for step in NAMES)) for n in SIZES]
    return markdown(heads, rows)


def rewritten(text: str) -> str:
    """Return the document with the table of today's code."""
    return between(text, BEGIN, END, f"\n{table()}\n\n", DOCUMENT.name)


def drawn() -> Figure:
    """Draw a line a step, in MiB over the number of keys."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7.0, 3.6), layout="constrained")
    axes = figure.subplots()
    for step, colour, marker in zip(NAMES, COLOURS, MARKERS, strict=False):
        mib = [allocated(step, n) / 2**20 for n in SIZES]
        axes.plot(SIZES, mib, color=colour, marker=marker, label=NAMES[step])
    axes.set_xlabel("queries and keys")
    axes.set_ylabel("MiB allocated (computed)")
    axes.set_xticks(SIZES)
    axes.legend(frameon=False)
    return figure


def main() -> None:
    """Write the figure and the table."""
    with look():
        FIGURE.write_bytes(saved(drawn(), "svg", TITLE))
    DOCUMENT.write_text(rewritten(DOCUMENT.read_text()))
    print(table())


if __name__ == "__main__":
    main()
