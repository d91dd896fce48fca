"""Where artifacts go: a folder that fails, fills up, goes away or is another's."""

from __future__ import annotations

import subprocess
import sys
import warnings
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

from asmtune.base.errors import StoreError
from asmtune.base.settings import Settings
from asmtune.compile.artifacts import ArtifactCache, ArtifactWarning
from asmtune.compile.lower import Lowering
from asmtune.compile.pool import Hooks, compile_configs
from asmtune.compile.worker import CompiledConfig
from asmtune.core.config import Config
from asmtune.core.hardware.model import Target
from asmtune.core.records.artifacts import Artifact
from tests.compile.readings import admit, digest_of
from tests.sample_kernels import scale_problem

CONFIGS = [Config({"BLOCK": block}) for block in (256, 512, 1024)]


def compiled(target: Target, settings: Settings, configs: list[Config] = CONFIGS) -> list[str]:
    """Digests of configs that all compile."""
    lowering = Lowering(scale_problem(), target, 30)
    hooks: Hooks[str] = Hooks(digest_of, admit)
    made = dict(compile_configs(lowering, configs, hooks, settings))
    assert sorted(made) == list(range(len(configs)))
    assert all(isinstance(outcome, CompiledConfig) for outcome in made.values()), made
    return [made[position].digest for position in range(len(configs))]  # type: ignore[union-attr]


def stand_in(settings: Settings) -> Path:
    """The folder that is written in the place of the user's."""
    first, second = ArtifactCache.of(settings).folders
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
    assert all(isinstance(ArtifactCache.of(settings).get(digest), Artifact) for digest in digests)
    assert (tmp_path / "cache").read_text() == "in the way"


def test_the_private_folder_goes_with_the_process(tmp_path: Path) -> None:
    """What stood in for the user's folder is gone when the process has ended."""
    (tmp_path / "file").write_text("in the way")
    script = (
        "import sys; from pathlib import Path\n"
        "from asmtune.compile.artifacts import ArtifactCache\n"
        "print(ArtifactCache(Path(sys.argv[1]), 1).prepare()[-1])\n"
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
    assert all(isinstance(ArtifactCache.of(settings).get(digest), Artifact) for digest in digests)
    entries = [*stand_in(settings).glob("*/*.gz"), *settings.artifacts_dir.glob("*/*.gz")]
    assert {path.name.partition(".")[0] for path in entries} == set(digests)


def test_a_read_only_folder_serves(target: Target, small_disk: Path) -> None:
    """What lies in a folder that cannot be written any more is used, and new artifacts go on."""
    settings = Settings(cache_dir=small_disk, jobs=1)
    (old,) = compiled(target, settings, CONFIGS[:1])
    subprocess.run(["mount", "-o", "remount,ro", str(small_disk)], check=True)
    before = ArtifactCache.of(settings).get(old)
    assert isinstance(before, Artifact)
    with pytest.warns(ArtifactWarning, match="Read-only file system; make it writable") as told:
        new = compiled(target, settings, CONFIGS[:2])
    assert len(_ours(told)) == 1
    assert new[0] == old
    assert [path.name for path in stand_in(settings).glob("*/*")] == [f"{new[1]}.json.gz"]
    assert ArtifactCache.of(settings).trim() == 0
