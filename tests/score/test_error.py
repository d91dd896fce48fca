"""A scorer's error: what its cuts keep of unseen kernels, and the file that ships."""

from __future__ import annotations

import json
import math
import re
from itertools import product
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from asmtune.base.errors import ParseError
from asmtune.predict.score.error import (
    ERROR_FILE,
    FLOOR,
    MOST,
    Cut,
    Errors,
    shipped_errors,
)
from benchmarks.measured_error import COUNTS, GAPS, RankedTask, error_table

NUMBERS = st.floats(0.0, 3.0, allow_nan=False)


@st.composite
def tasks(draw: st.DrawFn) -> list[RankedTask]:
    """Ranked tasks of a few kernels, each with a config of slowdown 0."""
    made = []
    for kernel in draw(st.lists(st.sampled_from("abc"), min_size=1, max_size=5)):
        size = draw(st.integers(1, 40))
        numbers = st.lists(NUMBERS, min_size=size, max_size=size)
        scores, slow = draw(numbers), draw(numbers)
        made.append(RankedTask(kernel, scores, [value - min(slow) for value in slow]))
    return made


def kept_by_hand(task: RankedTask, count: float, gap: float) -> list[int]:
    """The configs that a cut keeps, in the words of its definition."""
    order = sorted(range(len(task.scores)), key=lambda i: -task.scores[i])
    best = max(task.scores)
    within = [i for i in order if best - task.scores[i] <= gap or order.index(i) < FLOOR]
    return [i for i in within if order.index(i) < count]


@given(tasks())
@settings(max_examples=40, deadline=None)
def test_the_table_by_hand(ranked: list[RankedTask]) -> None:
    """Each cell is the mean over kernels of the mean over tasks of what its cut kept."""
    table = error_table(ranked)
    assert (table.tasks, table.kernels) == (len(ranked), len({task.kernel for task in ranked}))
    for count, gap in ((1, 0.0), (7, 0.1), (20, 0.5), (math.inf, 0.3), (10, math.inf)):
        shares, dropped = [], []
        for kernel in {task.kernel for task in ranked}:
            own = [task for task in ranked if task.kernel == kernel]
            fastest = [min(t.slowdown[i] for i in kept_by_hand(t, count, gap)) for t in own]
            shares.append(sum(math.exp(-slow) for slow in fastest) / len(own))
            dropped.append(sum(slow > 0.01 for slow in fastest) / len(own))
        cut = table.cut(count, gap)
        assert (cut.count, cut.gap) == (count, gap)
        assert cut.share == pytest.approx(sum(shares) / len(shares))
        assert cut.dropped == pytest.approx(sum(dropped) / len(dropped))


@given(tasks(), st.floats(0.5, 1.0))
@settings(max_examples=40, deadline=None)
def test_the_cheapest_cut_that_is_enough(ranked: list[RankedTask], share: float) -> None:
    """No other cut within the ceiling keeps the share with fewer; where none does, the best."""
    table = error_table(ranked)
    chosen = table.cut_for(share)
    allowed = [cut for row in table.cuts for cut in row if cut.count <= MOST]
    assert chosen in allowed
    if chosen.share >= share:
        assert not any(cut.share >= share and cut.kept < chosen.kept for cut in allowed)
    else:
        assert chosen.share == max(cut.share for cut in allowed)


def test_the_size_of_a_cut() -> None:
    """Ranks within the gap, five at least, as many as the count and as there are at most."""
    gaps = [0.0, 0.1, 0.2, 0.2, 0.2, 0.2, 0.3, 0.9]
    sizes = {(100, 0.0): 5, (100, 0.2): 6, (100, 5.0): 8, (7, 5.0): 7, (2, 0.2): 2}
    for (count, gap), size in sizes.items():
        assert Cut(count, gap, 1.0, 0.0, 1.0, 1.0).size(gaps) == size
    assert Cut(math.inf, math.inf, 1.0, 0.0, 1.0, 1.0).size(gaps[:3]) == 3


def errors() -> Errors:
    """Tables of one scorer at both moments."""
    ranked = [
        RankedTask("a", [-0.01 * i for i in range(60)], [abs(i - 12) * 0.02 for i in range(60)]),
        RankedTask("b", [-0.05 * i for i in range(30)], [i * 0.01 for i in range(30)]),
    ]
    both = {("mine", "assembly"): ranked, ("mine", "sketch"): ranked[:1]}
    tables = {key: error_table(own) for key, own in both.items()}
    return Errors(("NVIDIA H200",), {"measured": {"file": {"triton": "3.6.0"}}}, tables)


def test_saved_and_loaded(tmp_path: Path) -> None:
    """A file gives back its tables to four digits, and equal tables give equal bytes."""
    path, again = tmp_path / "error.json", tmp_path / "again.json"
    errors().save(path)
    loaded = Errors.load(path)
    assert loaded.provenance == errors().provenance
    assert set(loaded.tables) == set(errors().tables)
    for key, table in errors().tables.items():
        other = loaded.tables[key]
        assert (other.tasks, other.kernels) == (table.tasks, table.kernels)
        for count, gap in product(COUNTS, GAPS):
            cut = other.cut(count, gap)
            assert (cut.count, cut.gap) == (count, gap)
            assert cut.share == pytest.approx(table.cut(count, gap).share, abs=1e-4)
            assert cut.dropped == pytest.approx(table.cut(count, gap).dropped, abs=1e-4)
            assert cut.low == pytest.approx(table.cut(count, gap).low, abs=1e-4)
    loaded.save(again)
    assert again.read_bytes() == path.read_bytes()
    assert [entry.name for entry in tmp_path.iterdir() if entry.suffix == ".part"] == []
    assert loaded.source("mine") == "mine on 2 tasks of 2 kernels recorded on NVIDIA H200"


DAMAGE = {
    "not asmtune-scorer-error": lambda d: d.update(format="x"),
    "of version 4": lambda d: d.update(version=1),
    "no 'devices'": lambda d: d.pop("devices"),
    "no 'share'": lambda d: d["tables"][0].pop("share"),
    "zip()": lambda d: d["tables"][0]["dropped"].pop(),
}
CONTENTS = [b"", b"[]", b"{", b"\xff\xfe", b"[" * 100_000, b"3"]


def test_a_damaged_file(tmp_path: Path) -> None:
    """One line has what is missing, the file and what to do; other contents are refused as well."""
    path = tmp_path / "error.json"
    with pytest.raises(ParseError, match="No such file"):
        Errors.load(path)
    errors().save(path)
    whole = path.read_text()
    for says, damage in DAMAGE.items():
        document = json.loads(whole)
        damage(document)
        path.write_text(json.dumps(document))
        with pytest.raises(ParseError, match=re.escape(says)) as caught:
            Errors.load(path)
        assert f"{path}: " in str(caught.value)
        assert str(caught.value).endswith("run python -m benchmarks.replay_rows --error")
    for content in CONTENTS:
        path.write_bytes(content)
        with pytest.raises(ParseError, match="scorers' errors"):
            Errors.load(path)


def test_the_shipped_tables() -> None:
    """They are of the scorers that have a scale, on both devices, of many kernels, and small."""
    assert ERROR_FILE.stat().st_size < 1 << 16
    shipped = shipped_errors()
    assert shipped.devices == ("NVIDIA H200", "NVIDIA H100 80GB HBM3")
    assert {("learned", "assembly"), ("roofline", "assembly")} <= set(shipped.tables)
    assert all(v["triton"] == "3.6.0" for v in shipped.provenance["measured"].values())
    for table in shipped.tables.values():
        assert table.kernels > 30
        assert table.cut().share == 1.0
        assert 0.7 < table.cut(1).share < 1.0
