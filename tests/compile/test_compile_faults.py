"""A compiler that hangs, dies or grows: the other configs of the batch come out all the same."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from asmtune.base.settings import Settings
from asmtune.compile.artifacts import ArtifactCache
from asmtune.compile.lower import Lowering
from asmtune.compile.pool import Hooks, compile_configs
from asmtune.compile.sandbox import release
from asmtune.compile.worker import CompiledConfig
from asmtune.core.config import Config
from asmtune.core.hardware.model import Target
from asmtune.core.records.artifacts import Artifact
from tests.compile.making import assembler
from tests.compile.process_tree import comes_true, descendants
from tests.compile.readings import admit, deadly, digest_of
from tests.sample_kernels import scale_problem

FAULTS = {1: "sleep 300 & wait", 2: "kill -9 $$", 4: f"exec {sys.executable} $0.py"}
"""What an assembler does with a kernel of so many warps."""

GROW = "held = []\nwhile True:\n    held.append(bytearray(1 << 26))\n"


@pytest.fixture
def faulty_ptxas(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An assembler that hangs, dies or grows by the number of warps, and else is Triton's own."""
    script = tmp_path / "ptxas"
    cases = "\n".join(
        f"grep -q '^.reqntid {32 * warps}$' $file && {{ {fault}; }}"
        for warps, fault in FAULTS.items()
    )
    file = 'for word; do case "$word" in *.ptx) file="$word";; esac; done'
    for name, value in assembler(script, f'{file}\n{cases}\nexec $ptxas "$@"').items():
        monkeypatch.setenv(name, value)
    script.with_name("ptxas.py").write_text(GROW)
    release()  # what was started with another environment
    yield script
    release()


def hooks() -> Hooks[str]:
    """Admit everything."""
    return Hooks(digest_of, admit)


@pytest.mark.slow
def test_faults_of_the_assembler(
    faulty_ptxas: Path, target: Target, empty_settings: Settings
) -> None:
    """One that hangs, one that is killed and one that grows cost their own configs alone."""
    limits = replace(empty_settings, jobs=2, compile_timeout_s=15, compile_memory_bytes=2000 << 20)
    configs = [Config({"BLOCK": 512}, num_warps=warps) for warps in (8, 1, 2, 4)]
    configs.append(Config({"BLOCK": 1024}, num_warps=8))
    lowering = Lowering(scale_problem(), target, 30)
    made = dict(compile_configs(lowering, configs, hooks(), limits))
    assert sorted(made) == list(range(len(configs)))
    for position, config in enumerate(configs):
        outcome = made[position]
        if config.num_warps == 8:
            assert isinstance(outcome, CompiledConfig), outcome
            continue
        kinds = {1: "timeout", 2: "crash", 4: "memory"}
        assert (outcome.stage, outcome.kind) == ("cubin", kinds[config.num_warps]), outcome
    assert comes_true(lambda: not descendants("sleep 300"))
    # None of it is the config's own fault for good.
    cache = ArtifactCache(limits.artifacts_dir, 1 << 30)
    requests = [lowering.request(config) for config in configs]
    kept = [cache.get(request.digest) for request in requests]  # type: ignore[union-attr]
    assert [isinstance(entry, Artifact) for entry in kept] == [c.num_warps == 8 for c in configs]


@pytest.mark.slow
def test_a_worker_that_dies(target: Target, empty_settings: Settings) -> None:
    """A worker killed from outside, as for want of memory, costs the config that it was at."""
    configs = [Config({"BLOCK": 512}, num_warps=warps) for warps in (1, 2, 4, 8)]
    lowering = Lowering(scale_problem(), target, 30)
    limits = replace(empty_settings, jobs=2)
    made = dict(compile_configs(lowering, configs, Hooks(deadly, admit), limits))
    assert sorted(made) == list(range(len(configs)))
    for position, config in enumerate(configs):
        outcome = made[position]
        if config.num_warps == 2:
            assert (outcome.kind, "\n" in outcome.detail) == ("crash", False)
        else:
            assert isinstance(outcome, CompiledConfig), (config, outcome)
