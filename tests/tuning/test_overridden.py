"""Whole runs with hand-edited PTX among the configs: checked like any other, kept by content."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import torch

from asmtune.base.errors import InputError
from asmtune.base.settings import Settings
from asmtune.compile.load import Binary, LoadedLaunch
from asmtune.compile.lower import Lowering
from asmtune.compile.pool import compile_one
from asmtune.core.config import Config
from asmtune.core.hardware.shipped import match_device
from asmtune.core.records.artifacts import Failure
from asmtune.core.space.space import Space
from asmtune.store.database import Store
from asmtune.store.trace.reader import read_trace
from asmtune.store.trace.run import run_files
from asmtune.tuning.request import TuningResult, space_digest, with_own_values
from tests.tuning_support import (
    DEVICE,
    HostMachine,
    problem,
    request,
    resolved,
    usual_us,
    workshop,
)

PLAIN = Config({"BLOCK": 256, "FLAW": 0}, num_warps=4)
OTHER = Config({"BLOCK": 512, "FLAW": 0}, num_warps=4)
PLUS_ZERO, PLUS_ONE = "0f00000000", "0f3F800000"


class EditedMachine(HostMachine):
    """Does what the kernel, or the hand-edited file in its place, would do."""

    def launch(
        self,
        binary: Binary,
        values: Mapping[str, Any],
        pre_hook: Callable[..., Any] | None,
    ) -> LoadedLaunch:
        """Do what the file's text tells of."""
        launch = super().launch(binary, values, pre_hook)
        path = values.get("ir_override")
        text = Path(path).read_text() if path else ""

        def run() -> None:
            launch.run()
            if PLUS_ONE in text:
                values["out_ptr"].add_(1.0)
            if "scribbles" in text:
                values["x_ptr"][5] = 0.0

        return LoadedLaunch(launch.prepare, run)


def edited_us(config: Config) -> float:
    """A hand-edited config is three times as fast."""
    return usual_us(config) / (3 if config.ir_override else 1)


def sums(values: Mapping[str, Any]) -> Any:
    """What the kernel computes."""
    return values["x_ptr"] + values["y_ptr"]


@pytest.fixture(scope="module")
def ptx() -> str:
    """The compiler's PTX of `PLAIN`."""
    target = match_device(DEVICE)
    assert target is not None
    request = Lowering(problem(), target, 30).request(PLAIN)
    assert not isinstance(request, Failure)
    made = compile_one(request, Settings.from_environment())
    text = made.outputs["ptx"]
    assert PLUS_ZERO in text
    return text


def listed(path: Path, text: str, **options: Any) -> Space:
    """A hand-edited config, first, and two of the compiler's own."""
    path.write_text(text)
    edited = Config(PLAIN.kwargs, num_warps=4, ir_override=str(path), **options)
    return Space.from_configs([edited, PLAIN, OTHER])


def tuned(folder: Path, space: Space, **choices: Any) -> TuningResult:
    """Tune over a machine that does what a file says, with a store in a folder."""
    return resolved(workshop(folder / "w", EditedMachine(edited_us), **choices), space)


def test_a_faster_edit_wins_is_stored_and_found(tmp_path: Path, ptx: str) -> None:
    """It is timed as one more candidate; who finds it in the store can launch it as it was."""
    path = tmp_path / "add.ptx"

    def hook(values: Mapping[str, Any]) -> None:
        """Run before the edited config."""

    space = listed(path, "// better\n" + ptx, pre_hook=hook)
    record = tuned(tmp_path, space).record
    winner = record.winner
    assert winner.ir_override is not None
    assert Path(winner.ir_override).read_text() == path.read_text()
    assert record.median_us == pytest.approx(edited_us(winner))
    assert {m.config.ir_override is None for m in record.measurements} == {True, False}
    later = EditedMachine(edited_us)
    again = resolved(workshop(tmp_path / "w", later), space)
    assert (again.outcome, later.timed) == ("known", [])
    assert again.record.winner == winner
    assert again.record.winner.pre_hook is hook
    assert again.record.median_us == record.median_us
    with Store.open(tmp_path / "w" / "store.sqlite") as store:
        (kept,) = store.records()
    assert kept.winner.to_dict() == winner.to_dict()
    assert str(tmp_path) not in str(kept)
    (file,) = run_files(tmp_path / "w" / "runs")
    assert str(tmp_path) not in file.read_text()
    assert read_trace(file).ending.winner.to_dict() == winner.to_dict()


EDITS = [
    (lambda ptx: ptx.replace(PLUS_ZERO, PLUS_ONE), {}, "wrong_output", "out_ptr"),
    (lambda ptx: "// scribbles\n" + ptx, {}, "wrong_output", "x_ptr"),
    (lambda ptx: "// scribbles\n" + ptx, {"reference": sums}, "wrong_output", "x_ptr"),
    (lambda _: "no PTX", {}, "override", "ir_override="),
    (None, {}, "override", "ir_override="),
]


@pytest.mark.parametrize(("edit", "choices", "kind", "says"), EDITS)
def test_an_edit_that_loses(
    tmp_path: Path, ptx: str, edit: Any, choices: dict[str, Any], kind: str, says: str
) -> None:
    """Wrong output, a written input, and a malformed or missing file cost that config alone.

    What the source only reads is put back. Once the file is right it is tried.
    """
    path, machine = tmp_path / "add.ptx", EditedMachine(edited_us)
    space = listed(path, edit(ptx) if edit else "gone")
    if edit is None:
        path.unlink()
    made = problem()
    before = made.arguments["x_ptr"].clone()
    record = resolved(workshop(tmp_path / "w", machine, **choices), space, made).record
    assert record.winner in (PLAIN, OTHER)
    ((config, failure),) = record.failures
    assert config.ir_override is not None
    assert failure.kind == kind
    assert says in failure.detail
    assert all(config.ir_override is None for config in machine.timed)
    assert torch.equal(made.arguments["x_ptr"], before)
    if kind == "override":
        path.write_text("// there\n" + ptx)
        assert tuned(tmp_path, space).record.winner.ir_override is not None


def test_an_edited_file_is_a_new_candidate(tmp_path: Path, ptx: str) -> None:
    """After an edit of the file nothing of the store is a hit; what was wrong before is tried."""
    path = tmp_path / "add.ptx"
    wrong = listed(path, ptx.replace(PLUS_ZERO, PLUS_ONE))
    first = tuned(tmp_path, wrong)
    mended = listed(path, "// mended\n" + ptx)
    second = tuned(tmp_path, mended)
    assert (first.outcome, second.outcome) == ("tuned", "tuned")
    assert first.record.winner.ir_override is None
    assert second.record.winner.ir_override is not None
    assert first.record.provenance.space != second.record.provenance.space
    back = listed(path, ptx.replace(PLUS_ZERO, PLUS_ONE))
    third = tuned(tmp_path, back)
    assert third.record.winner.ir_override is None


def test_a_file_that_nobody_gave_is_never_launched(tmp_path: Path, ptx: str) -> None:
    """A stored name without a file among the configs is told, not looked for."""
    space = listed(tmp_path / "add.ptx", "// better\n" + ptx)
    tuner = workshop(tmp_path / "w", EditedMachine(edited_us))
    record = resolved(tuner, space).record
    assert record is not None
    without = request(tuner, searched=Space.from_configs([PLAIN, OTHER]))
    with pytest.raises(InputError, match=r"names add\.[0-9a-f]{16}\.ptx.*force=True"):
        with_own_values(record, without)


def test_columns_and_lists_have_one_digest() -> None:
    """A space of axes has the digest of its configs as a list, whatever their values are."""
    axes = {"A": (1, None), "DTYPE": (torch.float16, "é"), "S": (0.5, (2, 3))}
    space = Space({**axes, "num_warps": (4, 8), "num_ctas": (1, 2), "maxnreg": (None, 64)})
    assert space_digest(space.points()) == space_digest(list(space))
