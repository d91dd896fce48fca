"""The folder of artifacts: whole entries, damaged ones, limits and full disks."""

from __future__ import annotations

import gzip
import json
import os
import random
import time
from dataclasses import replace
from pathlib import Path

import pytest

from asmtune.base.settings import Settings
from asmtune.compile.artifacts import ArtifactCache, entry_path
from asmtune.compile.lower import Lowering
from asmtune.compile.pool import Hooks, compile_configs
from asmtune.compile.seals import SECRET
from asmtune.core.config import Config
from asmtune.core.hardware.model import Target
from asmtune.core.records.artifacts import Artifact, Failure
from tests.compile.making import accepted, assembler
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
    """Every entry below a folder: its files, but the secret and the mark of the last trim."""
    beside = (SECRET, "trimmed")
    return sorted(path for path in folder.rglob("*") if path.is_file() and path.name not in beside)


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


def test_swapped_files_are_not_read(cache: ArtifactCache) -> None:
    """Neither of two entries in each other's place is read."""
    digests = [DIGEST, "cd" * 32]
    for digest in digests:
        cache.put(digest, replace(artifact(), digest=digest))
    first, second = (path_of(cache, digest) for digest in digests)
    whole = first.read_bytes()
    first.write_bytes(second.read_bytes())
    second.write_bytes(whole)
    assert [cache.get(digest) for digest in digests] == [None, None]


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


def test_the_folder_is_listed_at_times(cache: ArtifactCache) -> None:
    """Entries over the limit go at the first compile, and again once ten minutes are over."""
    small = ArtifactCache(cache.folder, limit_bytes=0)
    for seconds, left in ((0, 0), (0, 1), (-601, 0), (601, 0)):
        cache.put("ab" * 32, artifact())
        marker = cache.folder / "trimmed"
        if seconds:
            then = time.time() + seconds
            os.utime(marker, (then, then))
        small.trim_at_times()
        assert (cache.get("ab" * 32) is not None) == left


def _digest(made: Artifact) -> str:
    return made.digest


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
        variables = assembler(script, f'exec $ptxas "$@" {option}')
        with pytest.MonkeyPatch.context() as patch:
            for name, value in variables.items():
                patch.setenv(name, value)
            wrapped = made(jobs=2)
        if "such" in option:
            assert isinstance(wrapped, Failure)
        else:
            assert wrapped.cubin != plain.cubin
    again = made(jobs=2)
    assert again == plain
    monkeypatch.setenv("PTXAS_OPTIONS", "--opt-level 0")
    assert made() != plain
