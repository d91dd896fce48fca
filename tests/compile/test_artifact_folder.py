"""Where artifacts go: a folder that fails, and workers that see another one."""

from __future__ import annotations

import os
import subprocess
import sys
import warnings
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from asmtune.base.errors import CompileError, StoreError
from asmtune.base.settings import Settings
from asmtune.compile import sandbox, worker
from asmtune.compile.artifacts import ArtifactCache, ArtifactFolders, ArtifactWarning
from asmtune.compile.lower import Lowering, LowerRequest
from asmtune.compile.pool import Hooks, compile_configs, compile_one, warm
from asmtune.compile.seals import SECRET
from asmtune.compile.worker import CompiledConfig
from asmtune.core.config import Config
from asmtune.core.hardware.model import Target
from asmtune.core.records.artifacts import Artifact, Failure, Sketch
from tests.compile.making import sketch_one
from tests.compile.readings import admit, digest_of, whole
from tests.sample_kernels import product_problem, scale_problem

CONFIGS = [Config({"BLOCK": block}) for block in (256, 512, 1024)]


def compiled(target: Target, settings: Settings, configs: list[Config] = CONFIGS) -> list[str]:
    """Digests of configs that all compile."""
    lowering = Lowering(scale_problem(), target, 30)
    hooks: Hooks[str] = Hooks(digest_of, admit)
    made = dict(compile_configs(lowering, configs, hooks, settings))
    assert sorted(made) == list(range(len(configs)))
    assert all(isinstance(outcome, CompiledConfig) for outcome in made.values()), made
    return [made[position].digest for position in range(len(configs))]  # type: ignore[union-attr]


def cache_of(settings: Settings) -> ArtifactCache:
    """Open the cache as any part of the program opens it to get an artifact."""
    return ArtifactCache(settings.artifacts_dir, settings.artifacts_bytes)


def stand_in(settings: Settings) -> Path:
    """The folder that is written in the place of the user's."""
    first, second = cache_of(settings).folders
    assert first == settings.artifacts_dir
    return second


def _ours(told: Iterable[warnings.WarningMessage]) -> list[warnings.WarningMessage]:
    return [warning for warning in told if warning.category is ArtifactWarning]


def test_one_warning_and_on(target: Target, tmp_path: Path) -> None:
    """Where no folder can be made, one warning says why, and artifacts lie in a private one."""
    (tmp_path / "cache").write_text("in the way")
    settings = Settings(cache_dir=tmp_path / "cache", jobs=1)
    with pytest.warns(ArtifactWarning, match="ASMTUNE_CACHE_DIR") as told:
        digests = compiled(target, settings)
    (warning,) = _ours(told)
    assert "\n" not in str(warning.message)
    assert str(stand_in(settings)) in str(warning.message)
    assert str(settings.artifacts_dir) in str(warning.message)
    assert stand_in(settings).stat().st_mode & 0o777 == 0o700
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert compiled(target, settings) == digests
    assert all(isinstance(cache_of(settings).get(digest), Artifact) for digest in digests)
    assert (tmp_path / "cache").read_text() == "in the way"


def test_the_private_folder_goes_with_the_process(tmp_path: Path) -> None:
    """What stood in for the user's folder is gone when the process has ended."""
    (tmp_path / "file").write_text("in the way")
    script = (
        "import sys; from pathlib import Path\n"
        "from asmtune.compile.artifacts import ArtifactCache\n"
        "place = ArtifactCache(Path(sys.argv[1]), 1).prepare()\n"
        "assert place.is_here\n"
        "print(place.folders[-1])\n"
    )
    ended = subprocess.run(
        [sys.executable, "-c", script, str(tmp_path / "file" / "artifacts")],
        capture_output=True,
        text=True,
        check=True,
    )
    folder = Path(ended.stdout.strip())
    assert folder.name.startswith("asmtune-")
    assert not folder.exists()
    assert ended.stderr.count("ArtifactWarning") == 1


def test_nowhere_to_write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where no private folder can be made either, that is an error in one line."""
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "absent"))
    cache = ArtifactCache(tmp_path / "file" / "artifacts", 1 << 20)
    with pytest.raises(StoreError, match="absent") as caught:
        cache.prepare()
    assert "\n" not in str(caught.value)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system with room for an artifact or two; skipped where none can be mounted."""
    place = tmp_path / "small"
    place.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=40k", "tmpfs", str(place)]
    try:
        subprocess.run(mount, check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("no file system can be mounted here")
    yield place
    subprocess.run(["umount", str(place)], check=True)


@pytest.mark.slow
@pytest.mark.parametrize("jobs", [1, 2])
def test_a_disk_that_fills_up_meanwhile(jobs: int, target: Target, small_disk: Path) -> None:
    """Artifacts that a worker cannot put on a full disk are kept elsewhere, with one warning."""
    settings = Settings(cache_dir=small_disk, jobs=jobs)
    configs = [Config({"BLOCK": 256 << n}, num_warps=1 << w) for n in range(3) for w in range(3)]
    with pytest.warns(ArtifactWarning, match="free some space") as told:
        digests = compiled(target, settings, configs)
    assert len(_ours(told)) == 1
    assert all(isinstance(cache_of(settings).get(digest), Artifact) for digest in digests)
    entries = [*stand_in(settings).glob("*/*.gz"), *settings.artifacts_dir.glob("*/*.gz")]
    assert {path.name.partition(".")[0] for path in entries} == set(digests)


def test_a_read_only_folder_serves(target: Target, small_disk: Path) -> None:
    """What lies in a folder that cannot be written any more is used, and new artifacts go on."""
    settings = Settings(cache_dir=small_disk, jobs=1)
    (old,) = compiled(target, settings, CONFIGS[:1])
    subprocess.run(["mount", "-o", "remount,ro", str(small_disk)], check=True)
    before = cache_of(settings).get(old)
    assert isinstance(before, Artifact)
    with pytest.warns(ArtifactWarning, match="Read-only file system; make it writable") as told:
        new = compiled(target, settings, CONFIGS[:2])
    assert len(_ours(told)) == 1
    assert new[0] == old
    assert [path.name for path in stand_in(settings).glob("*/*")] == [f"{new[1]}.json.gz"]
    assert cache_of(settings).trim() == 0


def test_a_folder_that_is_deleted_meanwhile(target: Target, empty_settings: Settings) -> None:
    """A folder that goes away between two configs is made again."""
    lowering = Lowering(scale_problem(), target, 30)
    found = compile_configs(lowering, CONFIGS, Hooks(digest_of, admit), empty_settings)
    next(found)
    subprocess.run(["rm", "-r", str(empty_settings.artifacts_dir)], check=True)
    digests = [outcome.digest for _, outcome in found if isinstance(outcome, CompiledConfig)]
    assert len(digests) == 2
    assert all(isinstance(cache_of(empty_settings).get(digest), Artifact) for digest in digests)


def test_a_worker_knows_the_folder(tmp_path: Path) -> None:
    """A folder is the asker's if its secret is, wherever it lies; damage is made good."""
    cache = ArtifactCache(tmp_path / "a", 1 << 20)
    place = cache.prepare()
    assert place.is_here
    assert cache.prepare() == place
    assert not replace(place, folders=(tmp_path / "b",)).is_here
    ArtifactCache(tmp_path / "b", 1 << 20).prepare()
    assert not replace(place, folders=(tmp_path / "b",)).is_here
    (tmp_path / "a").rename(tmp_path / "c")
    assert replace(place, folders=(tmp_path / "c",)).is_here
    for damage in (b"", b"\xff" * 7, os.urandom(500)):
        (tmp_path / "c" / SECRET).write_bytes(damage)
        again = ArtifactCache(tmp_path / "c", 1 << 20).prepare()
        assert again.is_here
        assert again.token != place.token


@pytest.fixture
def distant_workers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Two children that take a relative path for another folder than this process does."""
    (tmp_path / "here").mkdir()
    (tmp_path / "there" / "cache").mkdir(parents=True)
    sandbox.release()
    monkeypatch.chdir(tmp_path / "there")
    warm(None, (), Settings(cache_dir=Path("cache"), jobs=2))
    monkeypatch.chdir(tmp_path / "here")
    yield tmp_path / "there"
    sandbox.release()


@pytest.mark.slow
def test_artifacts_travel(distant_workers: Path, target: Target, settings: Settings) -> None:
    """What a worker with another folder makes comes back and is kept here; nothing lies there."""
    own = Settings(cache_dir=Path("cache"), jobs=2)
    ArtifactCache(distant_workers / "cache" / "artifacts", 1).prepare()
    digests = compiled(target, own)
    kept = [cache_of(own).get(digest) for digest in digests]
    assert [path.name for path in (distant_workers / "cache").rglob("*")] == ["artifacts", SECRET]
    compiled(target, settings)
    for digest, artifact in zip(digests, kept, strict=True):
        assert isinstance(artifact, Artifact)
        local = cache_of(settings).get(digest)
        assert isinstance(local, Artifact)
        assert artifact == replace(local, seconds=artifact.seconds)


@pytest.mark.slow
def test_failures_travel(distant_workers: Path, target: Target) -> None:
    """A lasting failure that a distant worker found is remembered here as well."""
    own = Settings(cache_dir=Path("cache"), jobs=2)
    tile = {"BLOCK_M": 64, "BLOCK_N": 256, "BLOCK_K": 64}
    configs = [Config(tile, maxnreg=cap) for cap in (32, 40)]
    lowering = Lowering(product_problem(), target, 30)
    made = dict(compile_configs(lowering, configs, Hooks(digest_of, admit), own))
    for position, config in enumerate(configs):
        request = lowering.request(config)
        assert isinstance(request, LowerRequest)
        outcome = cache_of(own).get(request.digest)
        assert isinstance(outcome, Failure)
        assert made[position] == outcome


def test_an_entry_is_sent_along(target: Target, settings: Settings) -> None:
    """A worker that cannot see the folder reads what lies in it from the job, and makes nothing."""
    request = Lowering(scale_problem(), target, 30).request(CONFIGS[0])
    assert isinstance(request, LowerRequest)
    made, sketch = compile_one(request, settings), sketch_one(request, settings)
    assert isinstance(made, Artifact)
    assert isinstance(sketch, Sketch)
    hasty = replace(settings, compile_timeout_s=1e-4)  # a stage would fail
    item = worker.CompileItem(0, request, cache_of(settings).raw(request.digest))
    nowhere = ArtifactFolders((Path("/nowhere"),), b"x")
    for make, expected in ((worker.make_artifact, made), (worker.make_sketch, sketch)):
        (done,) = worker.work(worker.CompileJob((item,), make, whole, hasty, nowhere), None)
        assert isinstance(done.outcome, CompiledConfig)
        assert done.outcome.reading == expected
        assert done.entry is None


def test_a_worker_with_another_triton(target: Target, settings: Settings) -> None:
    """A machine whose compiler is another version makes nothing under this one's digests."""
    request = Lowering(scale_problem(), target, 30).request(CONFIGS[0])
    assert isinstance(request, LowerRequest)
    place = cache_of(settings).prepare()
    job = worker.CompileJob(
        (worker.CompileItem(0, request),), worker.make_artifact, whole, settings, place
    )
    with pytest.raises(CompileError, match=r"triton 3\..* but 2\.0 where .* install the same"):
        worker.work(replace(job, triton="2.0"), None)
