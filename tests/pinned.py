"""The Triton of constraints.txt: what pages show and what configs that ship were tuned with."""

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


needs_shipped = pytest.mark.skipif(
    not same_triton(), reason=f"what ships is stale for Triton {triton.__version__}"
)
