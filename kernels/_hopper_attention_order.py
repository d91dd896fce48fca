"""Number of heads whose blocks attention's kernels for Hopper deal at once, to end together.

With causal masks blocks differ in length. The longest of some heads come first, then the others of
these heads, then those of the next heads. Many heads at once deal most evenly; few find the keys in
L2 that others have read.
"""

from __future__ import annotations

import functools
import heapq
from collections.abc import Callable

import numpy as np
import triton
from numpy.typing import NDArray

_FORWARD_FAR = 0.955
"""Speed where keys are not in L2: with heads of 128, 2048 and 8192 long, on an H200."""
_BACKWARD_FAR = 0.1
"""Power of the part that stays in L2 by which speed falls where more is in use, on an H100."""


@functools.lru_cache(maxsize=1024)
def heads_together(
    heads: int, group: int, extents: tuple[int, int], rows: int, in_l2: int, programs: int
) -> int:
    """Choose how many heads' blocks are dealt at once, the longest first, where queries are causal.

    Few heads find their keys in L2. All heads deal most evenly: of 32 heads of 8192 queries the
    largest share of a program is 1.2 times the mean with 6 heads at once, and 1.0 times with all.
    Heads that share keys are neighbours, and read them at the same time.

    Args:
        heads: all heads of queries.
        group: how many share keys.
        extents: queries and keys.
        rows: queries of a block.
        in_l2: heads whose keys and values stay in L2.
        programs: programs that share the blocks.
    """
    blocks = triton.cdiv(extents[0], rows)
    if blocks * heads > 64 * programs:
        return min(in_l2, heads)  # uneven by a block or two of many
    ends = np.minimum(rows * np.arange(blocks, 0, -1), extents[1])
    # In blocks of 128 keys; to begin and to end take as long as one more.
    lengths = -(-ends // 128) + 1

    def speed(count: int) -> float:
        least = least_share(dealt(lengths, heads, count), programs)
        return least * (1 if count <= in_l2 else _FORWARD_FAR)

    return best_together(heads, group, speed)


def least_share(lengths: NDArray[np.int64], programs: int) -> float:
    """Return the mean work of a program over the most of one, dealt as `item_at` deals items."""
    turn, place = np.divmod(np.arange(len(lengths)), programs)
    program = np.where(turn % 2 == 0, place, programs - 1 - place)
    work = np.bincount(program, lengths, programs)
    return float(work.mean() / work.max())


@functools.lru_cache(maxsize=1024)
def shares_together(shares: int, extents: tuple[int, int], in_l2: int, programs: int) -> int:
    """Choose how many key heads' blocks begin at once, the longest first, where keys are causal.

    A multiprocessor takes the next block when it is done with one. With 8 of 64 heads of 2048
    queries at once the last one ends 3% after the mean on an H100, with 12 it ends 13% after it.

    Args:
        shares: all heads of keys.
        extents: queries of all heads that share keys, and keys.
        in_l2: key heads whose queries and gradients stay in L2.
        programs: programs that run at the same time.
    """
    queries, blocks = triton.cdiv(extents[0], 64), triton.cdiv(extents[1], 128)
    if blocks * shares > 32 * programs:
        return min(in_l2, shares)  # uneven by a block or two of many
    # In blocks of 64 queries; to begin and to end take as long as four more.
    lengths = queries - np.arange(blocks) * queries // blocks + 4

    def speed(count: int) -> float:
        ends = [0] * programs
        for length in dealt(lengths, shares, count).tolist():
            heapq.heapreplace(ends, ends[0] + length)
        return sum(ends) / programs / max(ends) * min(in_l2 / count, 1) ** _BACKWARD_FAR

    return best_together(shares, 1, speed)


def dealt(lengths: NDArray[np.int64], heads: int, together: int) -> NDArray[np.int64]:
    """Return the lengths of all heads' items in order: `together` heads' first items come first."""
    whole, rest = divmod(heads, together)
    return np.concatenate([np.repeat(lengths, together)] * whole + [np.repeat(lengths, rest)])


def best_together(heads: int, group: int, score: Callable[[int], float]) -> int:
    """Choose how many heads' items are dealt at once: all, or whole groups, by the highest score.

    Of equal ones it is the least, which needs the least of L2.
    """
    choices = {heads, *(group << i for i in range(heads.bit_length()) if group << i < heads)}
    return max(choices, key=lambda count: (round(score(count), 3), -count))
