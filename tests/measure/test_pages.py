"""Memory of which little changes: those pages alone are restored, and all are watched."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from asmtune.measure.checks import pages
from asmtune.measure.checks.checker import OutputChecker
from asmtune.measure.checks.effects import Effects
from asmtune.measure.checks.pages import PAGE, PageCopy, Pages
from asmtune.measure.checks.roles import CheckOptions

POOL = Effects(reads=frozenset({"pool"}), writes=frozenset({"pool"}))
ROWS = [3, 700, 1023]


class WrittenBytes(TorchDispatchMode):
    """Counts the bytes that operations write in place, and large allocations."""

    def __init__(self, large: int = 1 << 62) -> None:
        super().__init__()
        self.written, self.allocated, self.large = 0, 0, large

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Count, and go on."""
        result = func(*args, **(kwargs or {}))
        name = func.overloadpacket.__name__
        if name == "index_copy_":
            self.written += args[3].nbytes
        elif name.endswith("_") and name != "set_" and isinstance(args[0], Tensor):
            self.written += args[0].nbytes
        if name != "set_" and isinstance(result, Tensor):
            storage = result.untyped_storage()
            given = [one.untyped_storage().data_ptr() for one in args if isinstance(one, Tensor)]
            is_new = storage.data_ptr() not in given
            self.allocated += is_new and storage.nbytes() >= self.large
        return result


def pool_of(rows: int = 2048) -> Tensor:
    """Rows of a page each."""
    return torch.arange(float(rows * 1024)).view(rows, 1024)


def update(pool: Tensor, *rows: int) -> Callable[[], None]:
    """A kernel that updates rows in place."""

    def run() -> None:
        for row in rows:
            pool[row] = pool[row] * 0.5 + 1

    return run


def kind(failure: Any) -> str | None:
    return None if failure is None else failure.kind


def test_a_pool_is_restored_by_the_pages_that_a_launch_changes() -> None:
    """Before a timed run some pages of 32 MiB are written, and no second copy is ever made."""
    pool = pool_of(8192)
    before, run = pool.clone(), update(pool, *ROWS)
    count = WrittenBytes(pool.nbytes)
    with count, OutputChecker({"pool": pool}, POOL, CheckOptions()) as checker:
        assert checker.set_reference(run) is None
        assert checker.check(run) is None
        for _ in range(50):
            count.written = 0
            checker.prepare()
            assert count.written <= 2 * len(ROWS) * PAGE
            assert torch.equal(pool, before)
            run()
    assert count.allocated == 1
    assert torch.equal(pool, before)


@pytest.mark.parametrize("page", [0, 1, 299])
def test_each_page_is_compared(page: int) -> None:
    """A byte that differs gives its page's number, of the first and the last as well."""
    contents = torch.zeros(300 * PAGE, dtype=torch.uint8)
    other = contents.clone()
    other[page * PAGE + 7] = 1
    compared = Pages.of(0, 300 * PAGE, words=True)
    assert compared.differing(contents, other).tolist() == [page + 1]
    assert compared.differing(contents, contents.clone()).tolist() == []


def test_where_no_memory_is_left_for_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    """The default fails for want of memory, and the contents are restored all the same."""
    pool = pool_of()
    before = pool.clone()
    checker = OutputChecker({"pool": pool}, POOL, CheckOptions())

    def full(*_: object) -> Any:
        raise torch.OutOfMemoryError("CUDA out of memory")

    monkeypatch.setattr(Pages, "differing", full)
    assert kind(checker.set_reference(update(pool, *ROWS))) == "memory"
    assert not torch.equal(pool, before)
    checker.close()
    assert torch.equal(pool, before)


@pytest.mark.parametrize("rows", [(*ROWS, 1500), (3, 700), (), range(2048)])
def test_a_config_that_writes_elsewhere_loses_and_is_undone(rows: Any) -> None:
    """It loses with a reason, and the next one finds the contents of the start."""
    pool = pool_of()
    before, run = pool.clone(), update(pool, *ROWS)

    def right() -> None:
        assert torch.equal(pool, before)
        run()

    with OutputChecker({"pool": pool}, POOL, CheckOptions()) as checker:
        assert checker.set_reference(run) is None
        assert kind(checker.check(update(pool, *rows))) == "wrong_output"
        assert checker.check(right) is None
        checker.prepare()
        assert torch.equal(pool, before)
        update(pool, *rows)()
    assert torch.equal(pool, before)


def test_rows_that_differ_from_run_to_run() -> None:
    """Of two runs of the default all pages are restored; a tensor unlike itself is not compared."""
    pool, turns = torch.ones(2048, 1024), iter([*[(1,), (2,), (1500,)] * 20])
    with OutputChecker({"pool": pool}, POOL, CheckOptions()) as checker:
        assert checker.set_reference(lambda: pool[next(turns)].zero_()) is None
        assert any("is not checked" in note for note in checker.notes)
        assert checker.check(lambda: pool[next(turns)].zero_()) is None
        pool[[1, 2, 1500]] = 5.0
        checker.prepare()
        assert bool((pool == 1).all())
        pool[77] = 3.0
    assert bool((pool == 1).all())


def test_an_interrupt_leaves_the_contents(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-C while the saved contents show the expected output costs the user nothing."""
    pool = pool_of()
    before, run = pool.clone(), update(pool, *ROWS)
    checker = OutputChecker({"pool": pool}, POOL, CheckOptions())
    assert checker.set_reference(run) is None
    written, write = 0, PageCopy.write

    def interrupted(self: PageCopy, contents: Any) -> None:
        nonlocal written
        written += 1
        if written == 2:
            raise KeyboardInterrupt
        write(self, contents)

    with monkeypatch.context() as patched:
        patched.setattr(PageCopy, "write", interrupted)
        run()
        with pytest.raises(KeyboardInterrupt):
            checker._expected_outputs.failure({})
    checker.close()
    assert torch.equal(pool, before)


@given(
    first=st.integers(0, 40),
    length=st.integers(1, 40_000),
    aligned=st.booleans(),
    places=st.sets(st.integers(0, 39_999), max_size=6),
)
def test_pages_of_any_range(first: int, length: int, aligned: bool, places: set[int]) -> None:
    """Every byte that changes is in a page that is found, and its page alone comes back."""
    memory = torch.arange(41_000).to(torch.uint8)
    if not aligned:
        memory = torch.from_numpy(memory.numpy()[1:])
    contents = memory[first : first + length]
    whole = torch.zeros(first % 16 + length, dtype=torch.uint8)
    copy = whole[first % 16 :].copy_(contents)
    found = Pages.of(first, first + length, words=aligned)
    changed = [place for place in places if place < length]
    contents[changed] += 1
    numbers = found.differing(contents, copy)
    assert list(found.differing(contents, copy, numbers)) == list(numbers)
    for place in changed:
        assert found.hold(numbers, first + place, first + place + 1)
    assert len(numbers) <= len(changed)
    PageCopy(found, numbers, copy, "cpu").write(contents)
    assert torch.equal(contents, copy)


VIEWS: dict[str, Callable[[Tensor], Tensor]] = {
    "unaligned": lambda memory: memory[3:],
    "columns": lambda memory: memory[: 1 << 20].view(1024, 1024)[:, 7:900],
    "transposed": lambda memory: memory[1 : 1 + (1 << 20)].view(1024, 1024).t(),
    "bytes": lambda memory: memory.view(torch.uint8)[5:-3],
    "complex": lambda memory: memory.view(torch.complex64),
}


@pytest.mark.parametrize("view", VIEWS.values(), ids=VIEWS)
@pytest.mark.parametrize("few", [True, False])
def test_views_with_gaps_and_odd_starts(
    view: Callable[[Tensor], Tensor], few: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Views pass, lose and come back alike, whether their pages are copied apart or whole."""
    monkeypatch.setattr(pages, "_FEW", 8 if few else 1 << 30)
    memory = torch.arange(float((1 << 20) + 8))
    pool, before = view(memory), memory.clone()
    shifted = memory[1 << 19 : (1 << 19) + 100]

    def run() -> None:
        pool[5:7] += 1

    def stray() -> None:
        run()
        shifted.mul_(-3)

    with OutputChecker({"pool": pool}, POOL, CheckOptions()) as checker:
        assert checker.set_reference(run) is None
        assert checker.check(run) is None
        assert kind(checker.check(stray)) in ("wrong_output", "stray_write")
        assert checker.check(run) is None
        checker.prepare()
        assert torch.equal(memory, before)
        stray()
    assert torch.equal(memory, before)
