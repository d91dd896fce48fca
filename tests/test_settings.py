"""Settings from the environment, and digests of things."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
import torch
import triton
from hypothesis import given
from hypothesis import strategies as st
from platformdirs import user_cache_path

from asmtune.base.errors import InputError
from asmtune.base.fingerprint import canonical, digest, version_of, versions
from asmtune.base.settings import Settings

JSON = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.text(max_size=5)),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=8,
)


def test_defaults() -> None:
    """An empty environment, and variables set to nothing, give the documented defaults."""
    settings = Settings.from_environment({})
    assert settings == Settings(
        cache_dir=user_cache_path("asmtune"), jobs=len(os.sched_getaffinity(0))
    )
    assert settings.artifacts_bytes == 2048 * 1024 * 1024
    assert settings.compile_memory_bytes == 16384 * 1024 * 1024
    assert settings.compile_timeout_s == 30
    assert settings.import_timeout_s == 60
    assert settings.wait_s == 600
    assert settings.store_where == str(user_cache_path("asmtune") / "store.sqlite")
    empty = {"ASMTUNE_CACHE_DIR": "", "ASMTUNE_JOBS": "", "ASMTUNE_STORE_URL": ""}
    assert Settings.from_environment(empty) == settings


def test_each_variable_is_read() -> None:
    """Every documented variable sets its field, in the documented unit."""
    settings = Settings.from_environment(
        {
            "ASMTUNE_CACHE_DIR": "/somewhere",
            "ASMTUNE_STORE_URL": "postgresql://me:secret@host/tuned",
            "ASMTUNE_WAIT_S": "2.5",
            "ASMTUNE_ARTIFACTS_MB": "0.5",
            "ASMTUNE_JOBS": "3",
            "ASMTUNE_COMPILE_TIMEOUT_S": "2.5",
            "ASMTUNE_COMPILE_MEMORY_MB": "512",
            "ASMTUNE_IMPORT_TIMEOUT_S": "1.5",
        }
    )
    assert settings == Settings(
        cache_dir=Path("/somewhere"),
        store_url="postgresql://me:secret@host/tuned",
        wait_s=2.5,
        artifacts_bytes=512 * 1024,
        jobs=3,
        compile_timeout_s=2.5,
        compile_memory_bytes=512 * 1024 * 1024,
        import_timeout_s=1.5,
    )
    assert settings.store_path == Path("/somewhere/store.sqlite")
    assert settings.store_where == "postgresql://me:secret@host/tuned"
    assert settings.artifacts_dir == Path("/somewhere/artifacts")
    assert "secret" not in repr(settings)


def test_process_environment_is_the_default(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Without a mapping the process's own variables count, `~` in the folder included."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("ASMTUNE_CACHE_DIR", "~/tuned")
    assert Settings.from_environment().cache_dir == tmp_path / "tuned"


@pytest.mark.parametrize(
    "name",
    [
        "ASMTUNE_ARTIFACTS_MB",
        "ASMTUNE_JOBS",
        "ASMTUNE_COMPILE_TIMEOUT_S",
        "ASMTUNE_COMPILE_MEMORY_MB",
        "ASMTUNE_IMPORT_TIMEOUT_S",
    ],
)
@pytest.mark.parametrize("text", ["0", "-1", "many", "nan", "inf", " "])
def test_bad_numbers_are_named(name: str, text: str) -> None:
    """What is no positive number is refused with its variable and its value."""
    with pytest.raises(InputError) as caught:
        Settings.from_environment({name: text})
    assert str(caught.value) == f"environment variable {name}={text!r}: expected a number above 0"


def test_not_waiting() -> None:
    """A wait of no seconds is one; what is no number of seconds is refused."""
    assert Settings.from_environment({"ASMTUNE_WAIT_S": "0"}).wait_s == 0
    for text in ("-1", "long", "inf", "nan"):
        with pytest.raises(InputError, match=f"ASMTUNE_WAIT_S='{text}': expected a number of 0"):
            Settings.from_environment({"ASMTUNE_WAIT_S": text})


@pytest.mark.parametrize("text", ["0.5", "1.5"])
def test_jobs_are_whole(text: str) -> None:
    """Half a compile at once is refused: it would be none."""
    with pytest.raises(InputError, match=f"ASMTUNE_JOBS='{text}': expected a whole number"):
        Settings.from_environment({"ASMTUNE_JOBS": text})


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
