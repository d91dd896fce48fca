"""The installed Triton: whether it is that of constraints.txt, and what it lacks."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import triton

ROOT = Path(__file__).parents[1]


def same_triton() -> bool:
    """Say if the installed Triton is the pinned one, up to its patch."""
    pinned = re.search(r"^triton==(\d+\.\d+)", (ROOT / "constraints.txt").read_text(), re.MULTILINE)
    return pinned is not None and triton.__version__.startswith(f"{pinned[1]}.")


def has_block_pointers() -> bool:
    """Say if the installed Triton compiles `tl.make_block_ptr`: 3.9 has taken it away."""
    return tuple(map(int, triton.__version__.split(".")[:2])) < (3, 9)


needs_block_pointers = pytest.mark.skipif(
    not has_block_pointers(), reason=f"Triton {triton.__version__} has no block pointers"
)
