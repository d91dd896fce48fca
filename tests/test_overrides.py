"""Files of hand-edited IR count by their content, wherever they lie."""

from __future__ import annotations

from pathlib import Path

import pytest

from asmtune.base.errors import InputError, SpaceError
from asmtune.core.config import Config
from asmtune.core.ir_overrides import Override, described, pinned, pinned_space, unedited
from asmtune.core.records.artifacts import Failure
from asmtune.core.records.tuned import Measurement
from asmtune.core.space.space import Space
from asmtune.store import codec
from asmtune.store.trace.reader import decoded, encoded


def written(path: Path, text: str = "some text\n") -> str:
    """A file's path, as a config names it."""
    path.write_text(text)
    return str(path)


def test_an_edit_makes_another_config(tmp_path: Path) -> None:
    """The same path with another content is another config, and the first one's copy stays."""
    config = Config({"BLOCK": 64}, ir_override=written(tmp_path / "add.ptx", "one"))
    first = pinned(config, tmp_path / "kept")
    written(tmp_path / "add.ptx", "two")
    second = pinned(config, tmp_path / "kept")
    assert first != second
    assert first.to_dict() != second.to_dict()
    assert first.ir_override is not None
    assert Path(first.ir_override).read_text() == "one"
    assert described(first) == first.to_dict()
    assert described(config) == second.to_dict()


def test_a_copy_of_a_copy_is_the_copy(tmp_path: Path) -> None:
    """Pinning twice changes nothing; an edited copy is written afresh."""
    path = written(tmp_path / "add.ptx")
    once = pinned(Config({}, ir_override=path), tmp_path)
    assert pinned(once, tmp_path) == once
    assert once.ir_override is not None
    Path(once.ir_override).write_text("tampered with")
    assert pinned(Config({}, ir_override=path), tmp_path) == once
    assert Path(once.ir_override).read_text() == "some text\n"


def test_the_default_is_the_compilers_own_work(tmp_path: Path) -> None:
    """A hand-edited config that stands first is not what others are compared with."""
    edited = Config({"BLOCK": 64}, ir_override=written(tmp_path / "add.ptx"))
    plain = Config({"BLOCK": 128})
    space = Space.from_configs([edited, plain]).where("any", lambda BLOCK: BLOCK > 64)
    made = pinned_space(space, tmp_path)
    assert made.default == plain
    assert len(made.listed) == 2
    assert list(made) == [plain]
    alone = pinned_space(Space.from_configs([edited]), tmp_path)
    assert alone.default == pinned(edited, tmp_path)


def test_a_space_without_files_is_left_alone(tmp_path: Path) -> None:
    """It is the same object, and no folder is made."""
    space = Space({"BLOCK": (64, 128)})
    assert pinned_space(space, tmp_path / "kept") is space
    assert unedited(space) is space
    assert not (tmp_path / "kept").exists()


def test_who_checks_nothing_gets_no_edited_config(tmp_path: Path) -> None:
    """`unedited` leaves hand-edited configs out, the default among them, where there are others."""
    edited = Config({"BLOCK": 64}, ir_override=written(tmp_path / "add.ptx"))
    plain = Config({"BLOCK": 128})
    made = unedited(Space.from_configs([edited, plain]))
    assert (list(made), made.default) == ([plain], plain)
    alone = Space.from_configs([edited])
    assert unedited(alone) is alone


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("add.ptx", None, "no such file"),
        ("add.ptx", b"", "empty"),
        ("add.ptx", b"\xff\xfe\x00", "not a text"),
        ("add.cubin", b"x", r"ends in one of \.ttir, \.ttgir, \.llir, \.ptx"),
    ],
)
def test_what_cannot_be_used_is_told(
    tmp_path: Path, name: str, content: bytes | None, said: str
) -> None:
    """A missing, empty, binary or strange file is named in one line; its config stays as it is."""
    if content is not None:
        (tmp_path / name).write_bytes(content)
    path = str(tmp_path / name)
    with pytest.raises(InputError, match=said) as caught:
        Override.read(path)
    assert path in str(caught.value)
    assert "\n" not in str(caught.value)
    config = Config({}, ir_override=path)
    assert pinned(config, tmp_path) == config
    assert described(config)["ir_override"] == name


def test_files_are_no_axis(tmp_path: Path) -> None:
    """Axes and their default cannot hold files: what they say would depend on paths."""
    with pytest.raises(SpaceError, match="list of configs"):
        Space({"ir_override": ["add.ptx"]})
    with pytest.raises(SpaceError, match="list of configs"):
        Space({"BLOCK": [64]}, default=Config({"BLOCK": 64}, ir_override="add.ptx"))


@pytest.mark.parametrize(
    ("detail", "first"),
    [
        (
            "PTXASError: x\nptxas /tmp/a.ptx, line 7; error   : Bad 'rat'\nfatal",
            "line 7: Bad 'rat'",
        ),
        ('Parse failed.\nloc("/tmp/a/kernel.ttir":3:1): error: what', "line 3: what"),
        (
            'Parse failed.\nloc("at"("/k.py":4:9)): error: what',
            'loc("at"("/k.py":4:9)): error: what',
        ),
        ("", ""),
    ],
)
def test_failures_begin_with_what_is_wrong(detail: str, first: str) -> None:
    """The first line names the file, and the line in it where a tool has told one."""
    failure = Override("add.ptx", "ptx", "").failed(Failure("cubin", "ptxas", detail))
    assert failure.detail.splitlines()[0] == f"ir_override=add.ptx: {first}"


def test_stores_and_traces_hold_the_name(tmp_path: Path) -> None:
    """A config comes back with its file's name; what is no name is refused."""
    config = pinned(Config({"BLOCK": 64}, ir_override=written(tmp_path / "add.ptx")), tmp_path)
    measured = Measurement(config, 1.0, 0.9, 1.1, (1.0,))
    again = codec.measurement_from_json(codec.measurement_to_json(measured), "here").config
    assert again.to_dict() == config.to_dict()
    assert again.ir_override == config.to_dict()["ir_override"]
    assert decoded(Config, encoded(config), "here") == again
    wrong = config.to_dict() | {"ir_override": 5}
    with pytest.raises(InputError, match=r"config\.ir_override.*a file's name"):
        codec.measurement_from_json(codec.measurement_to_json(measured) | {"config": wrong}, "here")
    with pytest.raises(InputError, match=r"ir_override: expected a file's name"):
        decoded(Config, wrong, "here")
