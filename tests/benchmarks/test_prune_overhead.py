"""The benchmark of a prune report: what it counts, and whose time it is."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest

from asmtune.compile.artifacts import ArtifactCache
from asmtune.core.records.artifacts import Artifact, Failure
from benchmarks import prune_overhead
from benchmarks.prune_overhead import Stopwatch, stage_seconds


def test_stages_of_artifacts_alone(tmp_path: Path) -> None:
    """Every artifact's stages count once; remembered failures tell of none."""
    cache = ArtifactCache(tmp_path, 1 << 20)
    for digest, seconds in (("a1", {"llir": 0.5, "cubin": 0.25}), ("b2", {"cubin": 0.125})):
        texts = {"ttir": "", "ttgir": "", "ptx": ""}
        metadata = {"num_warps": 4, "shared": 0}
        cache.put(digest, Artifact(digest, "k", "sm_90", texts, b"", metadata, seconds))
    cache.put("c3", Failure("cubin", "ptxas", "no"))
    found = sorted(stage_seconds(tmp_path), key=len)
    assert found == [{"cubin": 0.125}, {"llir": 0.5, "cubin": 0.25}]


def test_stopwatch(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every call of a watched method counts, also one that raises."""
    ticks = iter([0.0, 1.0, 5.0, 5.5])
    monkeypatch.setattr(prune_overhead, "time", SimpleNamespace(thread_time=lambda: next(ticks)))

    class Worker:
        def work(self, number: int) -> int:
            return 10 // number

    watch = Stopwatch()
    watch.watch(Worker, "work")
    assert Worker().work(5) == 2
    with pytest.raises(ZeroDivisionError):
        Worker().work(0)
    assert watch.seconds == {"work": 1.5}
