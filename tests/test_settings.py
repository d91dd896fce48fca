"""Settings from the environment, and digests of things."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch
import triton
from hypothesis import given
from hypothesis import strategies as st
from platformdirs import user_cache_path

from asmtune.base import settings as own
from asmtune.base.atomic_write import make_private
from asmtune.base.errors import InputError
from asmtune.base.fingerprint import canonical, digest, version_of, versions
from asmtune.base.settings import KNOWN, Settings, SettingWarning

JSON = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.text(max_size=5)),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=8,
)


GIVEN = {
    "ASMTUNE_CACHE_DIR": "/somewhere",
    "ASMTUNE_STORE_URL": "postgresql://me:secret@host/tuned",
    "ASMTUNE_TARGETS": "/devices",
    "ASMTUNE_WAIT_S": "2.5",
    "ASMTUNE_ARTIFACTS_MB": "0.5",
    "ASMTUNE_JOBS": "3",
    "ASMTUNE_COMPILE_TIMEOUT_S": "2.5",
    "ASMTUNE_COMPILE_MEMORY_MB": "512",
    "ASMTUNE_LAUNCH": "python",
}
MOST = {
    "ASMTUNE_ARTIFACTS_MB": 1 << 30,
    "ASMTUNE_JOBS": 4096,
    "ASMTUNE_COMPILE_TIMEOUT_S": 1_000_000,
    "ASMTUNE_COMPILE_MEMORY_MB": 1 << 30,
    "ASMTUNE_WAIT_S": 1_000_000,
}


def test_each_variable_is_read() -> None:
    """Every documented variable sets its field, in the documented unit; "" is as if unset."""
    plain = Settings(cache_dir=user_cache_path("asmtune"), jobs=len(os.sched_getaffinity(0)))
    assert Settings.from_environment({}) == plain
    assert Settings.from_environment(dict.fromkeys(GIVEN, "")) == plain
    assert (plain.artifacts_bytes, plain.compile_memory_bytes) == (2 << 30, 16 << 30)
    assert (plain.compile_timeout_s, plain.wait_s) == (30, 600)
    folder = user_cache_path("asmtune")
    assert plain.store_where == str(folder / "store.sqlite")
    assert (plain.targets_dir, plain.runs_dir) == (folder / "targets", folder / "runs")
    settings = Settings.from_environment(GIVEN)
    assert (settings.store_url, settings.targets) == (GIVEN["ASMTUNE_STORE_URL"], "/devices")
    assert (settings.wait_s, settings.artifacts_bytes, settings.jobs) == (2.5, 512 * 1024, 3)
    assert (settings.compile_timeout_s, settings.compile_memory_bytes) == (2.5, 512 << 20)
    assert settings.launch == "python"
    assert settings.store_where == settings.store_url
    assert settings.targets_dir == Path("/devices")
    here = Path("/somewhere")
    found = (settings.store_path, settings.artifacts_dir, settings.overrides_dir)
    assert found == (here / "store.sqlite", here / "artifacts", here / "overrides")
    assert "secret" not in repr(settings)


@pytest.mark.parametrize("name", sorted(MOST))
def test_numbers_out_of_range_are_named(name: str) -> None:
    """What is no number above 0, or more than the system can serve, is refused with its value."""
    Settings.from_environment({name: str(MOST[name])})
    refused = dict.fromkeys(("-1", "many", "nan", "inf", " "), "expected a ")
    if name == "ASMTUNE_WAIT_S":
        assert Settings.from_environment({name: "0"}).wait_s == 0
    else:
        refused["0"] = "above 0"
    if name == "ASMTUNE_JOBS":
        refused |= {"0.5": "whole", "1.5": "whole"}
    most = f"expected at most {MOST[name]:,}"
    for text, says in {**refused, "1e300": most, "1e10": most, f"{MOST[name]}1": most}.items():
        with pytest.raises(InputError, match=says) as caught:
            Settings.from_environment({name: text})
        assert str(caught.value).startswith(f"environment variable {name}={text!r}: ")


def test_without_docstrings() -> None:
    """Under `python -OO` settings are read; the table in the module names the same ones."""
    assert set(re.findall(r"ASMTUNE_\w+", str(own.__doc__))) == KNOWN
    code = "from asmtune.base.settings import Settings as S; print(S.from_environment().jobs)"
    command = [sys.executable, "-OO", "-W", "error", "-c", code]
    done = subprocess.run(command, env={**os.environ, "ASMTUNE_JOBS": "3"}, capture_output=True)
    assert done.stdout.split() == [b"3"], done.stderr


def test_a_misspelt_variable_is_told_once(recwarn: pytest.WarningsRecorder) -> None:
    """What has the name of no setting is told once with the nearest; tests' own are none of it."""
    own._warn_unknown.cache_clear()
    for _ in range(2):
        Settings.from_environment({"ASMTUNE_JOB": "1", "ASMTUNE_TEST_CACHE": "/x", "PATH": ""})
        Settings.from_environment(dict.fromkeys(KNOWN, ""))
    (warning,) = recwarn
    assert (warning.category, warning.filename) == (SettingWarning, __file__)
    text = str(warning.message)
    assert "ASMTUNE_JOB is no setting" in text
    assert text.endswith("did you mean ASMTUNE_JOBS?")


@given(st.lists(st.text(max_size=6), max_size=4), st.lists(st.text(max_size=6), max_size=4))
def test_digests_tell_parts_apart(one: list[str], two: list[str]) -> None:
    """Equal parts give equal digests; other parts, or other cuts of one text, give others."""
    assert (digest(*one) == digest(*two)) == (one == two)
    assert len(digest(*one)) == 64


def test_digests_by_hand() -> None:
    """The digest hashes each part behind its length, text as UTF-8."""
    assert digest("ab", "c") != digest("a", "bc")
    assert digest("é") == digest("é".encode())
    # echo -n | sha256sum
    assert digest() == "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"


@pytest.mark.slow
@given(st.dictionaries(st.text(max_size=5), JSON), st.randoms())
def test_canonical_text_does_not_depend_on_order(values: dict[str, object], random: object) -> None:
    """The same mapping in another order gives the same text, which JSON reads back."""
    items = list(values.items())
    random.shuffle(items)  # type: ignore[attr-defined]
    assert canonical(dict(items)) == canonical(values)
    assert json.loads(canonical(values)) == values


def test_versions_of_packages() -> None:
    """The three packages that results depend on have versions; an unknown one is absent."""
    found = versions()
    assert set(found) == {"asmtune", "triton", "torch"}
    assert found["triton"] == triton.__version__
    assert found["torch"].split("+")[0] == torch.__version__.split("+")[0]
    assert version_of("a-package-that-is-not-there") == "absent"


def test_folders_are_made_for_the_user_alone(tmp_path: Path) -> None:
    """Whatever the umask, a folder that is made is used the next time; so are other safe ones."""
    before = os.umask(0o002)
    try:
        make_private(tmp_path / "a" / "cache" / "artifacts")
        make_private(tmp_path / "a" / "cache" / "artifacts")
    finally:
        os.umask(before)
    folder = tmp_path / "a" / "cache"
    assert folder.stat().st_mode & 0o777 == 0o700
    for mode in (0o700, 0o755, 0o500, 0o1777):
        folder.chmod(mode)
        assert Settings.from_environment({"ASMTUNE_CACHE_DIR": str(folder)}).cache_dir == folder
    (tmp_path / "file").touch()
    with pytest.raises(OSError, match="Not a directory"):
        make_private(tmp_path / "file" / "a" / "b")
