"""Entries: the vendor's function that each kernel is timed against, by families of kernels."""

from __future__ import annotations

from typing import Final

from benchmarks.kernels.entries import attention, images, layers, products, rows
from benchmarks.kernels.entry import Entry

ENTRIES: Final[dict[str, Entry]] = {
    **attention.ENTRIES,
    **products.ENTRIES,
    **layers.ENTRIES,
    **rows.ENTRIES,
    **images.ENTRIES,
}
"""Entries by the kernel's name."""
