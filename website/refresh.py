"""Outputs of the pages' commands, written into the pages.

    python -m website.refresh [PAGE ...] [--gpu]

Without --gpu what a GPU printed stays as it is; with it, on a machine that has one, it is
printed anew, and the block's title says on what, with which versions, and when.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from website.blocks import Output, pages
from website.runner import Ran, run


def main() -> None:
    """Refresh the pages given, or all."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("pages", nargs="*", type=Path)
    parser.add_argument("--gpu", action="store_true", help="run what needs a GPU as well")
    given = parser.parse_args()
    for page in given.pages or pages():
        blocks = list(run(page, gpu=given.gpu))
        text = page.read_text(encoding="utf-8")
        new = refreshed(text, blocks, stamp() if given.gpu else "")
        if new != text:
            part = page.with_suffix(".part")
            part.write_text(new, encoding="utf-8")
            part.replace(page)
        print(f"{page.name}: {'written' if new != text else 'as it was'}")


def refreshed(text: str, blocks: Sequence[Ran], stamped: str) -> str:
    """Replace what a page shows by what its blocks printed.

    Args:
        text: the page's.
        blocks: its blocks, and what those that ran printed.
        stamped: the title of what a GPU printed.
    """
    lines = text.splitlines(keepends=True)
    for ran in reversed(blocks):
        if ran.block.output is not None and ran.printed is not None:
            title = stamped if ran.block.needs_gpu else ""
            _replace(lines, ran.block.output, ran.printed, title)
    return "".join(lines)


def stamp() -> str:
    """Describe the machine, the versions and the date of what is printed now."""
    from asmtune.base.fingerprint import versions
    from asmtune.measure.timing.nvml import device_name, driver_version

    made = versions()
    libraries = f"Triton {made['triton']}, PyTorch {made['torch']}"
    date = datetime.now(UTC).date().isoformat()
    return f"{device_name()}, driver {driver_version()}, {libraries}, {date}"


def _replace(lines: list[str], shown: Output, printed: str, title: str) -> None:
    fence = lines[shown.first].rstrip("\n")
    if title:
        fence = f'```text title="{title}"'
    body = shown.of(printed)
    # A table in Markdown fences would end the block: none is printed today.
    if "```" in body:
        raise ValueError("an output that holds ``` cannot be shown in a fenced block")
    lines[shown.first : shown.last] = [f"{fence}\n", f"{body}\n" if body else "", "```\n"]


if __name__ == "__main__":
    main()
