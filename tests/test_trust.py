"""What others may have planted in the cache folder, and whose folders are used."""

from __future__ import annotations

import gzip
import json
import os
import shutil
import tempfile
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from asmtune.base.errors import InputError
from asmtune.base.settings import Settings, check_cache_folder
from asmtune.base.trust import (
    CacheFolderWarning,
    UntrustedError,
    trusted_file,
    trusted_folder,
)
from asmtune.compile.artifacts import ArtifactCache, ArtifactWarning, StoredTtir, entry_path
from asmtune.compile.lower import Lowering, LowerRequest
from asmtune.compile.pool import compile_one
from asmtune.compile.seals import SECRET, sealed, secret_of
from asmtune.core.config import Config
from asmtune.core.hardware.model import Target
from asmtune.core.ir_overrides import pinned
from asmtune.core.records.artifacts import Artifact
from asmtune.store.lookup import StoreWarning, fast_lookup
from asmtune.store.safe_store import SafeStore, open_user_store
from asmtune.store.trace.run import run_files
from asmtune.store.trace.writer import TraceWarning
from tests.sample_kernels import scale_problem
from tests.store.children import as_nobody, finish, start
from tests.store.store_records import PROVENANCE, record
from tests.trace_runs import write_run

NOBODY = 65534
DIGEST = "ab" * 32
OUTPUTS = {"ttir": "", "ttgir": "", "ptx": ""}
PLANTED = Artifact(DIGEST, "k", "sm_90", OUTPUTS, b"!", {"num_warps": 4, "shared": 0}, {})
KEY = record().key

two_users = pytest.mark.skipif(os.geteuid() != 0, reason="only root can act as another user")


@pytest.fixture
def place() -> Iterator[Path]:
    """A folder that every user can reach, in one where everybody may write."""
    folder = Path(tempfile.mkdtemp())
    folder.chmod(0o755)
    yield folder
    shutil.rmtree(folder)


def made(folder: Path, mode: int, user: int | None = None) -> Path:
    """Make a folder with a mode, and give it away."""
    folder.mkdir()
    if user is not None:
        os.chown(folder, user, user)
    folder.chmod(mode)
    return folder


def planted_by_nobody(folder: Path) -> None:
    """Plant an artifact with a seal that its folder's own secret makes, and a way to a store."""

    def plant() -> None:
        artifacts = ArtifactCache(folder / "artifacts", 1 << 20)
        artifacts.put(DIGEST, PLANTED)
        StoredTtir(artifacts).put(DIGEST, "planted")
        SafeStore(str(folder / "store.sqlite")).save(record())

    assert as_nobody(plant) == ""


@two_users
def test_a_planted_artifact_is_not_used(place: Path) -> None:
    """In a cache folder where everybody may write, another user's artifacts are not read."""
    shared = made(place / "shared", 0o1777)
    assert (
        as_nobody(lambda: ArtifactCache(shared / "artifacts", 1 << 20).put(DIGEST, PLANTED)) == ""
    )
    cache = ArtifactCache(shared / "artifacts", 1 << 20)
    assert cache.get(DIGEST) is None
    with pytest.warns(
        ArtifactWarning, match=f"belongs to user {NOBODY} .*change its owner"
    ) as told:
        used = cache.prepare()
    assert len(told) == 1
    assert "\n" not in str(told[0].message)
    assert cache.get(DIGEST) is None
    assert shared not in used[-1].parents
    cache.put(DIGEST, replace(PLANTED, cubin=b"own"))
    assert cache.get(DIGEST) == replace(PLANTED, cubin=b"own")
    assert cache.trim() == 0


@two_users
def test_a_planted_artifact_is_compiled_again(place: Path, target: Target) -> None:
    """What another user put into the user's own folder while it was open is made anew."""
    settings = Settings(cache_dir=place / "cache", jobs=1)
    request = Lowering(scale_problem(), target, 30).request(Config({"BLOCK": 64}))
    assert isinstance(request, LowerRequest)
    own = compile_one(request, settings)
    assert isinstance(own, Artifact)
    cache = ArtifactCache.of(settings)
    path = entry_path(cache.folder, request.digest)
    whole = json.loads(gzip.decompress(path.read_bytes()))
    for secret in (b"", os.urandom(32)):
        path.write_bytes(sealed(request.digest, whole, secret))
        assert cache.get(request.digest) is None
        again = compile_one(request, settings)
        assert isinstance(again, Artifact)
        assert again == replace(own, seconds=again.seconds)
    os.chown(path, NOBODY, NOBODY)
    assert cache.get(request.digest) is None
    compile_one(request, settings)
    assert path.stat().st_uid == os.getuid()


@two_users
def test_links_that_others_planted_lead_nowhere(place: Path) -> None:
    """Another user's link in the place of a file of the cache is replaced, and not followed."""
    cache = ArtifactCache(place / "artifacts", 1 << 20)
    cache.prepare()
    victim = place / "victim"
    victim.write_text("precious")
    for path in (entry_path(cache.folder, DIGEST), cache.folder / SECRET):
        path.parent.mkdir(mode=0o700, exist_ok=True)
        path.unlink(missing_ok=True)
        path.symlink_to(victim)
        os.lchown(path, NOBODY, NOBODY)
    assert cache.get(DIGEST) is None
    cache.put(DIGEST, PLANTED)
    assert cache.get(DIGEST) == PLANTED
    assert victim.read_text() == "precious"


def linked(place: Path, link: Path, user: int = 0) -> Path:
    """Make a link to a folder that is the user's alone."""
    link.symlink_to(made(place / "own", 0o700))
    os.lchown(link, user, user)
    return link


CASES: dict[str, Callable[[Path], Path]] = {
    f"a belongs to user {NOBODY}": lambda p: made(p / "a", 0o755, NOBODY),
    "a of user 0 .mode 0777.: `chmod go-w` it": lambda p: made(p / "a", 0o777),
    "a of user 0 .mode 0775.: `chmod g-w` it": lambda p: made(p / "a", 0o775),
    "a belongs to user .*mode 1777": lambda p: made(p / "a", 0o1777, NOBODY),
    "a of user 0 .mode 0777.": lambda p: made(made(p / "a", 0o777) / "b", 0o700),
    "of user 0 .mode 0777.": lambda p: made(p / "a", 0o777) / "b" / "c",
    "a belongs to user": lambda p: made(made(p / "a", 0o755, NOBODY) / "b", 0o700),
    "user 0 .mode 0777.": lambda p: linked(p, made(p / "a", 0o777) / "l"),
    "a/l belongs to": lambda p: linked(p, made(p / "a", 0o1777) / "l", NOBODY),
}


@two_users
@pytest.mark.parametrize("expected", CASES)
def test_folders_of_others(place: Path, expected: str) -> None:
    """A folder that others can change, move or replace is refused in one line, at each use."""
    folder = CASES[expected](place)
    before = sorted(place.rglob("*"))
    with pytest.raises(InputError, match=expected) as caught:
        Settings.from_environment({"ASMTUNE_CACHE_DIR": str(folder)})
    assert "\n" not in str(caught.value)
    with pytest.raises(UntrustedError, match=expected):
        trusted_folder(folder / "sub", make=True)
    with pytest.raises(UntrustedError, match=expected):
        trusted_file(folder / "f")
    assert sorted(place.rglob("*")) == before


@two_users
@pytest.mark.parametrize("mode", [0o1777, 0o755])
def test_another_users_subfolders(place: Path, mode: int) -> None:
    """Nothing is read from or written to another user's folders below one's own, nor raised."""
    settings = Settings(cache_dir=made(place / "cache", 0o1777))
    planted_by_nobody(settings.cache_dir)
    for name in ("runs", "overrides"):
        made(settings.cache_dir / name, 0o777, NOBODY)
    settings.cache_dir.chmod(mode)
    before = sorted(settings.cache_dir.rglob("*"))
    assert not fast_lookup(settings.store_where, KEY, PROVENANCE, is_own=True).sure
    with pytest.warns(StoreWarning, match="store.sqlite belongs to user"):
        assert open_user_store(settings).records() == []
    with pytest.warns(TraceWarning, match="runs belongs to user"):
        write_run(settings.runs_dir)
    with pytest.raises(InputError, match="runs belongs to user"):
        run_files(settings.runs_dir)
    assert StoredTtir(ArtifactCache.of(settings)).get(DIGEST) is None
    (place / "k.ptx").write_text("text")
    with pytest.warns(CacheFolderWarning, match="overrides belongs to user"):
        copy = pinned(Config({}, ir_override=str(place / "k.ptx")), settings.overrides_dir)
    assert copy.ir_override is not None
    assert settings.cache_dir not in Path(copy.ir_override).parents
    assert Path(copy.ir_override).read_text() == "text"
    assert sorted(settings.cache_dir.rglob("*")) == before


@two_users
@pytest.mark.parametrize("suffix", ["", "-wal", "-journal"])
def test_a_planted_store(place: Path, suffix: str) -> None:
    """A store is not read where another user wrote it, or the log beside it."""
    settings = Settings(cache_dir=place / "cache")
    store = open_user_store(settings)
    store.save(record())
    (settings.cache_dir / f"store.sqlite{suffix}").touch()
    os.chown(settings.cache_dir / f"store.sqlite{suffix}", NOBODY, NOBODY)
    with pytest.warns(StoreWarning, match="belongs to user .* going on without the store"):
        assert store.records() == []
    assert not fast_lookup(settings.store_where, KEY, PROVENANCE, is_own=True).sure


@two_users
def test_a_cache_of_roots(place: Path) -> None:
    """What root has baked serves other users: all of it where they may read the secret."""
    settings = Settings(cache_dir=place / "cache")
    cache = ArtifactCache.of(settings)
    cache.put(DIGEST, PLANTED)
    open_user_store(settings).save(record())
    for path in (settings.cache_dir, *settings.cache_dir.rglob("*")):
        path.chmod(0o755 if path.is_dir() else 0o644)
    store = SafeStore(settings.store_where, is_own=True)

    def reads(expected: Artifact | None) -> None:
        trusted_folder(settings.cache_dir)
        assert fast_lookup(settings.store_where, KEY, PROVENANCE, is_own=True).seen is not None
        assert store.records() == [record()]
        assert cache.get(DIGEST) == expected

    assert as_nobody(lambda: reads(PLANTED)) == ""
    (cache.folder / SECRET).chmod(0o600)
    assert as_nobody(lambda: reads(None)) == ""
    assert cache.get(DIGEST) == PLANTED


def test_a_previous_secret(tmp_path: Path) -> None:
    """Entries of another secret, of none, or of an older asmtune are misses and made again."""
    cache = ArtifactCache(tmp_path / "artifacts", 1 << 20)
    cache.put(DIGEST, PLANTED)
    own = entry_path(cache.folder, DIGEST).read_bytes()
    for damage in (None, b"", b"short", os.urandom(32)):
        (cache.folder / SECRET).unlink()
        if damage is not None:
            (cache.folder / SECRET).write_bytes(damage)
        entry_path(cache.folder, DIGEST).write_bytes(own)
        assert cache.get(DIGEST) is None
        cache.put(DIGEST, PLANTED)
        assert cache.get(DIGEST) == PLANTED


def test_one_secret_of_many_makers(tmp_path: Path) -> None:
    """Processes and threads that make the secret at once get the same, in a private file."""
    for number in range(5):
        folder = made(tmp_path / str(number), 0o700)
        ready, go = os.pipe()

        def make(pipe: int, folder: Path = folder, ready: int = ready, go: int = go) -> None:
            os.close(go)
            os.read(ready, 1)  # until the parent closes its end
            with ThreadPoolExecutor(2) as threads:
                for secret in threads.map(secret_of, [folder] * 2):
                    os.write(pipe, secret.hex().encode() + b"\n")

        children = [start(make) for _ in range(6)]
        os.close(go)
        secrets = {line for child in children for line in finish(*child).split()}
        os.close(ready)
        assert secrets == {secret_of(folder).hex()}
        assert len(secret_of(folder)) == 32
        assert (folder / SECRET).stat().st_mode & 0o777 == 0o600
        assert [path.name for path in folder.iterdir()] == [SECRET]


def test_a_launch_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the named folder is not safe, the process gets a private one with one warning."""
    folder = made(tmp_path / "cache", 0o777)
    monkeypatch.setenv("ASMTUNE_CACHE_DIR", str(folder))
    with pytest.warns(CacheFolderWarning, match="is used until this process ends") as told:
        private = Settings.from_environment().cache_dir
    assert len(told) == 1
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert Settings.from_environment().cache_dir == private
        trusted_folder(private)
    with pytest.raises(InputError, match="others may write"):
        check_cache_folder()


@pytest.mark.parametrize("umask", [0o000, 0o002, 0o077])
def test_own_folders_under_any_umask(tmp_path: Path, umask: int) -> None:
    """What asmtune makes is trusted by asmtune, however the umask is set."""
    before = os.umask(umask)
    try:
        settings = Settings(cache_dir=tmp_path / "a" / "cache")
        ArtifactCache.of(settings).put(DIGEST, PLANTED)
        write_run(settings.runs_dir)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            open_user_store(settings).save(record())
    finally:
        os.umask(before)
    for path in (settings.cache_dir, *settings.cache_dir.rglob("*")):
        assert path.stat().st_mode & 0o077 == 0, path
    named = {"ASMTUNE_CACHE_DIR": str(settings.cache_dir)}
    assert Settings.from_environment(named).cache_dir == settings.cache_dir
    assert ArtifactCache.of(settings).get(DIGEST) == PLANTED
    assert open_user_store(settings).records() == [record()]
