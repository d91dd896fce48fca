"""The folder of artifacts: whole entries, damaged ones, limits and full disks."""

from __future__ import annotations

import errno
import gzip
import json
import os
import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from triton import knobs

from asmtune.base.errors import StoreError
from asmtune.base.settings import Settings
from asmtune.compile.artifacts import ArtifactCache, entry_path
from asmtune.compile.lower import Lowering, LowerRequest
from asmtune.compile.pool import Hooks, compile_configs, compile_one
from asmtune.compile.seals import SECRET
from asmtune.core.config import Config
from asmtune.core.hardware.model import Target
from asmtune.core.records.artifacts import Artifact, Failure
from tests.compile.making import accepted
from tests.sample_kernels import scale_problem

DIGEST = "ab" * 32


def artifact(size: int = 100) -> Artifact:
    """An artifact of about that many bytes on disk, by hand."""
    return Artifact(
        digest=DIGEST,
        entry="kernel",
        arch="sm_90",
        outputs={"ttir": "module {}", "ttgir": "é", "ptx": ".version 8.8\n"},
        cubin=random.Random(size).randbytes(size),
        metadata={"shared": 1024, "num_warps": 4, "maxnreg": None},
        seconds={"ptx": 0.25},
    )


@pytest.fixture
def cache(tmp_path: Path) -> ArtifactCache:
    """A cache in a folder that is yet to be made."""
    return ArtifactCache(tmp_path / "deep" / "artifacts", 1 << 20)


def path_of(cache: ArtifactCache, digest: str) -> Path:
    """The file of an artifact."""
    return entry_path(cache.folder, digest)


def files(folder: Path) -> list[Path]:
    """Every file below a folder but its secret."""
    return sorted(path for path in folder.rglob("*") if path.is_file() and path.name != SECRET)


def test_round_trip(cache: ArtifactCache) -> None:
    """An artifact comes back equal, from a file of its own in a folder for its owner alone."""
    cache.put(DIGEST, artifact())
    assert cache.get(DIGEST) == artifact()
    assert [path.name for path in files(cache.folder)] == [f"{DIGEST}.json.gz"]
    assert (cache.folder / DIGEST[:2]).stat().st_mode & 0o777 == 0o700
    assert path_of(cache, DIGEST).stat().st_mode & 0o777 == 0o600
    assert cache.get("cd" * 32) is None
    entry = json.loads(gzip.decompress(path_of(cache, DIGEST).read_bytes()))  # data, and no code
    assert set(entry) == {"digest", "entry", "arch", "outputs", "cubin", "metadata", "seconds"}


@pytest.mark.parametrize("kind", ["registers", "shared_memory", "ptxas", "compiler", "kernel"])
@pytest.mark.parametrize("passing", ["timeout", "crash", "memory", "disk"])
def test_failures_that_last_are_remembered(cache: ArtifactCache, kind: str, passing: str) -> None:
    """A failure that would happen again is kept; one that may be the machine's doing is not."""
    cache.put(DIGEST, Failure("llir", passing, "perhaps a busy machine"))
    assert cache.get(DIGEST) is None
    failure = Failure("cubin", kind, "first line\nsecond line")
    cache.put(DIGEST, failure)
    assert cache.get(DIGEST) == failure


def test_damage_by_random_bytes(cache: ArtifactCache) -> None:
    """An entry of random bytes, cut off, or of another form is gone and made again."""
    cache.put(DIGEST, artifact())
    (path,) = files(cache.folder)
    whole = path.read_bytes()
    other_forms = (b"[]", b"3", b'{"failure": 3}', b'{"cubin": "AA=="}', b"not json", b"\xff\xfe")
    damaged = [
        b"",
        random.Random(0).randbytes(500),
        *(whole[:cut] for cut in (1, 5, 12, len(whole) // 2, len(whole) - 1)),
        whole[:40] + b"\0" * 8 + whole[48:],
        *map(gzip.compress, other_forms),
    ]
    for data in damaged:
        path.write_bytes(data)
        assert cache.get(DIGEST) is None, data[:20]
        assert not path.exists()
        cache.put(DIGEST, artifact())
        assert cache.get(DIGEST) == artifact()


def test_trim_drops_the_least_recently_used(cache: ArtifactCache) -> None:
    """Beyond the limit the entries used longest ago go, and a read counts as use."""
    digests = [f"{number:02x}" * 32 for number in range(4)]
    for age, digest in enumerate(digests):
        cache.put(digest, artifact(10_000))
        os.utime(path_of(cache, digest), (1000 + age, 1000 + age))
    size = path_of(cache, digests[0]).stat().st_size
    assert cache.trim() == 0
    cache.get(digests[0])
    cache.limit_bytes = 2 * size + 10
    assert cache.trim() == 2 * size
    assert [cache.get(digest) is None for digest in digests] == [False, True, True, False]


def test_a_compile_keeps_to_the_limit(target: Target, empty_settings: Settings) -> None:
    """After a run the folder is within its limit."""
    small = replace(empty_settings, artifacts_bytes=20_000)
    configs = [Config({"BLOCK": 64 << i}) for i in range(4)]
    hooks = Hooks(_digest, lambda *_: None)
    outcomes = list(compile_configs(Lowering(scale_problem(), target, 30), configs, hooks, small))
    assert len(outcomes) == 4
    sizes = [path.stat().st_size for path in files(small.artifacts_dir)]
    assert sizes
    assert sum(sizes) <= 20_000


def _digest(made: Artifact) -> str:
    return made.digest


def test_a_disk_that_fills_up(cache: ArtifactCache, monkeypatch: pytest.MonkeyPatch) -> None:
    """A write that stops half way leaves neither part nor entry, and the old entry whole."""
    cache.put(DIGEST, artifact())
    opened = Path.open

    def half(path: Path, mode: str = "r", **given: Any) -> Any:
        file = opened(path, mode, **given)
        if mode == "wb":
            with file:
                file.write(b"half")
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return file

    monkeypatch.setattr(Path, "open", half)
    # The folder that would stand in for it is on the same disk here.
    with pytest.raises(StoreError, match=r"No space left on device; free some space"):
        cache.put(DIGEST, replace(artifact(), entry="other"))
    assert [path.name for path in files(cache.folder)] == [f"{DIGEST}.json.gz"]
    assert cache.get(DIGEST) == artifact()


def test_digests_tell_requests_apart(target: Target) -> None:
    """Whatever changes the binary changes the digest; equal requests share it."""
    lowering = Lowering(scale_problem(), target, 30)
    request = accepted(lowering, Config({"BLOCK": 64}))
    same = Lowering(scale_problem(), target, 30).request(Config({"BLOCK": 64}))
    others = [
        lowering.request(Config({"BLOCK": 128})),
        lowering.request(Config({"BLOCK": 64}, num_warps=8)),
        lowering.request(Config({"BLOCK": 64}, maxnreg=32)),
        Lowering(scale_problem(17), target, 30).request(Config({"BLOCK": 64})),
        replace(request, machine=("cuda", 80, 32)),
        replace(request, environment={"DISABLE_LLVM_OPT": "1"}),
    ]
    digests = {request.digest, *(other.digest for other in others)}  # type: ignore[union-attr]
    assert len(digests) == 7
    assert same == request
    assert Lowering(scale_problem(32), target, 30).request(Config({"BLOCK": 64})) == request


@pytest.fixture
def two(target: Target, empty_settings: Settings) -> tuple[list[LowerRequest], ArtifactCache]:
    """Two configs that are compiled, and their folder."""
    lowering = Lowering(scale_problem(), target, 30)
    requests = [lowering.request(Config({"BLOCK": block})) for block in (64, 128)]
    for request in requests:
        assert isinstance(request, LowerRequest)
        assert isinstance(compile_one(request, empty_settings), Artifact)
    return requests, ArtifactCache(empty_settings.artifacts_dir, 1 << 30)  # type: ignore[return-value]


def test_swapped_files_are_compiled_again(
    two: tuple[list[LowerRequest], ArtifactCache], empty_settings: Settings
) -> None:
    """Of two entries in each other's place neither is read: each config gets its own code again."""
    requests, cache = two
    own = [cache.get(request.digest) for request in requests]
    paths = [path_of(cache, request.digest) for request in requests]
    first, second = (path.read_bytes() for path in paths)
    paths[0].write_bytes(second)
    paths[1].write_bytes(first)
    again = [compile_one(request, empty_settings) for request in requests]
    for before, after in zip(own, again, strict=True):
        assert isinstance(before, Artifact)
        assert isinstance(after, Artifact)
        assert (after.digest, after.cubin) == (before.digest, before.cubin)


@pytest.mark.slow(seconds=12)
def test_another_assembler_has_artifacts_of_its_own(
    target: Target, empty_settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A wrapper of ptxas, another content of it, and none again: each compiles what it is for."""

    def made(jobs: int = 1) -> Artifact | Failure | None:
        lowering = Lowering(scale_problem(), target, 30)
        hooks: Hooks[str] = Hooks(_digest, lambda *_: None)
        configs = [Config({"BLOCK": 64}), Config({"BLOCK": 128})]
        settings = replace(empty_settings, jobs=jobs)
        for _ in compile_configs(lowering, configs, hooks, settings):
            pass
        request = accepted(lowering, configs[0])
        return ArtifactCache(empty_settings.artifacts_dir, 1 << 30).get(request.digest)

    plain, script = made(), tmp_path / "ptxas"
    assert isinstance(plain, Artifact)
    for option in ("--opt-level 0", "--opt-level 1", "--no-such-option"):
        script.write_text(
            f'#!/bin/sh\n[ "$1" = --version ] && exec {knobs.nvidia.ptxas.path} --version\n'
            f'exec {knobs.nvidia.ptxas.path} "$@" {option}\n'
        )
        script.chmod(0o755)
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("TRITON_PTXAS_PATH", str(script))
            patch.setenv("TRITON_PTXAS_BLACKWELL_PATH", str(script))
            wrapped = made(jobs=2)
        if "such" in option:
            assert isinstance(wrapped, Failure)
        else:
            assert isinstance(wrapped, Artifact)
            assert wrapped.cubin != plain.cubin
    again = made(jobs=2)
    assert again == plain
    monkeypatch.setenv("PTXAS_OPTIONS", "--opt-level 0")
    assert made() != plain
