"""Pages of a range of memory: which of them differ, and copies of some.

A kernel that updates a few rows of a pool changes a few pages of it. Those are found once, on the
device where the memory is, and only they are restored before each run.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

PAGE: Final = 4096
_STRETCH: Final = 1 << 14  # pages looked at or copied at once: 64 MiB
_FEW: Final = 8  # a copy of pages beside the whole is worth its memory up to an eighth of them
_LEAST: Final = 256  # smaller ranges are copied whole: that is one launch instead of three

Numbers = NDArray[np.int64]
"""Numbers of pages, in order."""

NO_PAGES: Final[Numbers] = np.zeros(0, np.int64)


@dataclass(frozen=True)
class Pages:
    """Divides a range of bytes into pages, numbered from 1, between two edges: 0 and `count` + 1.

    Attributes:
        start: the range's first byte in its storage.
        head: bytes of the first edge: the pages after it are aligned to words.
        count: pages between the edges.
        words: whether a storage is aligned, so that 8 bytes are compared at once.
    """

    start: int
    head: int
    count: int
    words: bool

    @classmethod
    def of(cls, start: int, stop: int, *, words: bool) -> Pages:
        """Divide the bytes from `start` to `stop` of a storage."""
        head = min(-start % 8, stop - start)
        count = (stop - start - head) // PAGE
        return cls(start, head, count, words and count > 0)

    def few(self, numbers: Numbers) -> bool:
        """Return whether a copy of these pages takes little beside a copy of all."""
        return self.count >= _LEAST and len(numbers) * _FEW <= self.count

    def differing(self, one: Any, other: Any, among: Numbers | None = None) -> Numbers:
        """Compare two copies of the range, or some pages of them and the edges; waits once."""
        import torch

        ours, theirs = self.rows(one), self.rows(other)
        flags = torch.zeros(self.count + 2, dtype=torch.bool, device=one.device)
        for part in self._parts(among):
            expected = theirs[_on(part, theirs.device)].to(ours.device)
            here = _on(part, ours.device)
            flags[1:-1][here] = (ours[here] != expected).any(1)
        for place, a, b in zip((0, -1), self.edges(one), self.edges(other), strict=True):
            flags[place] = (a != b.to(a.device)).any()
        return np.asarray(flags.nonzero().flatten().cpu().numpy(), np.int64)

    def hold(self, numbers: Numbers, start: int, stop: int) -> bool:
        """Return whether one of these pages has a byte of a part of the storage."""
        first, last = (
            min(max((byte - self.start - self.head) // PAGE + 1, 0), self.count + 1)
            for byte in (start, stop - 1)
        )
        return bool(np.searchsorted(numbers, first) < np.searchsorted(numbers, last, "right"))

    def copy(self, numbers: Numbers, source: Any, target: Any) -> None:
        """Copy pages, and the edges, from one copy of the range to another."""
        if len(numbers) > self.count // 2:
            target.copy_(source)
            return
        for place in range(0, max(len(numbers), 1), _STRETCH):
            PageCopy(self, numbers[place : place + _STRETCH], source, target.device).write(target)

    def rows(self, contents: Any) -> Any:
        """View the pages between the edges, one a row."""
        import torch

        inner = contents[self.head : self.head + self.count * PAGE]
        return (inner.view(torch.int64) if self.words else inner).view(
            self.count, PAGE // 8 if self.words else PAGE
        )

    def edges(self, contents: Any) -> tuple[Any, Any]:
        """View the bytes before the first page, and those after the last."""
        return contents[: self.head], contents[self.head + self.count * PAGE :]

    def inner(self, numbers: Numbers) -> Numbers:
        """Return the rows of the pages that are no edges."""
        return numbers[(numbers > 0) & (numbers <= self.count)] - 1

    def _parts(self, among: Numbers | None) -> Iterator[Any]:
        import torch

        if among is None:
            yield from (slice(at, at + _STRETCH) for at in range(0, self.count, _STRETCH))
        else:
            rows = self.inner(among)
            places = range(0, len(rows), _STRETCH)
            yield from (torch.from_numpy(rows[at : at + _STRETCH]) for at in places)


def _on(part: Any, device: Any) -> Any:
    return part if isinstance(part, slice) else part.to(device)


class PageCopy:
    """Copies pages of a range, and its edges, to a device.

    Attributes:
        numbers: the pages.
    """

    def __init__(self, pages: Pages, numbers: Numbers, contents: Any, device: Any) -> None:
        import torch

        self.numbers = numbers
        self._pages = pages
        index = torch.from_numpy(pages.inner(numbers))
        rows = pages.rows(contents).index_select(0, index.to(contents.device))
        self._index, self._rows = index.to(device), rows.to(device)
        self._edges = [edge.to(device, copy=True) for edge in pages.edges(contents)]

    def write(self, contents: Any) -> None:
        """Write them to a copy of the range, without waiting where that is on the same device."""
        index, rows = (one.to(contents.device) for one in (self._index, self._rows))
        self._pages.rows(contents).index_copy_(0, index, rows)
        for edge, own in zip(self._pages.edges(contents), self._edges, strict=True):
            edge.copy_(own)
