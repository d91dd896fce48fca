"""Traces as recorded timings: what a run timed is replayed as it was."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from asmtune.base.errors import InputError, OracleError
from asmtune.base.settings import Settings
from asmtune.core.config import Config
from asmtune.core.hardware.model import Target
from asmtune.core.kernel_module import kernel_file
from asmtune.core.records.artifacts import Failure
from asmtune.core.records.tuned import TuneKey
from asmtune.predict.prune.flow import Funnel
from asmtune.predict.score.scorers import make_scorer
from asmtune.store.trace.reader import read_trace
from asmtune.store.trace.run import Header, TracedRun
from asmtune.store.trace.writer import TraceWriter
from asmtune.workshop.replay.flow import replay
from asmtune.workshop.replay.results import ReplayReport
from asmtune.workshop.replay.traces import recordings
from tests.trace_runs import HEADER, batch, compiled, measured

KERNELS = Path(__file__).parents[2] / "replay_data" / "kernels"
DEFAULT = Config({"BARRIERS": 0}, num_warps=4, num_stages=1)


def config(barriers: int) -> Config:
    """A config of the kernels of this test."""
    return Config({"BARRIERS": barriers}, num_warps=4, num_stages=1)


def header(kernel: str = "returns", n: int = 128) -> Header:
    """Make the header of a run of a kernel of this test."""
    dtype = "fp32" if kernel == "returns" else "fp16"
    key = TuneKey(f"made.{kernel}.kernel", {"n": n}, {"x_ptr": dtype}, "NVIDIA H200")
    reference = str(KERNELS / f"{kernel}.py")
    return replace(HEADER, kernel=kernel, key=key, reference=reference, default=DEFAULT)


def run_of(folder: Path, made: Header, times: dict[int, float]) -> TracedRun:
    """A run that timed configs by their barriers; one more wrote a wrong output."""
    writer = TraceWriter(folder, made)
    refused = replace(batch()[-1], config=config(18))
    verdicts = [compiled(config(n), 1, regs_per_thread=16, shared_bytes=0) for n in times]
    writer.batch(1, 1.0, [*verdicts, refused])
    wrong = Failure("check", "wrong_output", "x_ptr differs")
    outcomes = [measured(config(n), us) for n, us in times.items()]
    writer.trial(1, 1.0, [*outcomes, (config(19), wrong)], best_us=1.0)
    writer.final([measured(config(0), 16000.0)])
    writer.close()
    assert writer.path is not None
    return read_trace(writer.path)


def refused(run: TracedRun, kernels: Path | None = None) -> str:
    """The one line with which a run is refused."""
    with pytest.raises(InputError) as caught:
        recordings([run], kernels)
    message = str(caught.value)
    assert "\n" not in message
    return message


def test_a_key_of_buckets(tmp_path: Path) -> None:
    """Where the key has the size in a bucket, the task has what the module was given."""
    made = header(n=100)
    made = replace(made, key=replace(made.key, shape={"pow2(n)": 128}), sizes={"n": 100})
    run = run_of(tmp_path, made, {0: 17000.0, 1: 8000.0})
    ((task,),) = (found.oracle.tasks for found in recordings([run]))
    assert task.shape == {"n": 100}


def test_a_run_is_a_task(tmp_path: Path) -> None:
    """Timings in milliseconds, the last rounds' where there are any, and failures as errors."""
    (recording,) = recordings([run_of(tmp_path, header(), {0: 17000.0, 1: 8000.0})])
    assert recording.kernels == KERNELS
    assert recording.oracle.device == "NVIDIA H200"
    (task,) = recording.oracle.tasks
    assert (task.kernel, task.shape, task.dtype) == ("returns", {"n": 128}, "fp32")
    found = {row.config.kwargs["BARRIERS"]: (row.ms, row.error) for row in task.rows}
    assert found == {
        1: (8.0, None),
        0: (16.0, None),
        18: (None, "registers at ptxas: needs 300,"),
        19: (None, "wrong_output at check: x_ptr differs"),
    }
    assert task.rows[0].resources == {"regs": 16, "shared": 0}


def test_a_run_is_replayed(tmp_path: Path, settings: Settings, target: Target) -> None:
    """Each scorer gets its share of the best speed, and several runs make one report."""
    runs = [
        run_of(tmp_path, header(), {0: 17000.0, 1: 8000.0, 2: 4000.0}),
        run_of(tmp_path, header("barriers", 64), {3: 8000.0, 1: 2000.0}),
    ]
    scorers = [make_scorer("weights"), make_scorer("chance")]
    funnel = Funnel(target, scorers[0], settings)
    found = recordings(runs)
    assert [[task.kernel for task in one.oracle.tasks] for one in found] == [
        ["returns", "barriers"]
    ]
    whole = replay(found[0].oracle, found[0].kernels, funnel, scorers)
    assert whole.scorers[0].kernels == ("returns", "barriers")
    apart = [
        replay(one.oracle, one.kernels, funnel, scorers)
        for run in runs
        for one in recordings([run])
    ]
    assert ReplayReport.merged(apart).to_json() == whole.to_json()
    # weights prefers fewer barriers: of 0, 1 and 2 it takes the slowest, of 3 and 1 the best.
    kept = [result.kept["top1"] for result in whole.scorers[0].tasks]
    assert kept == [0.25, pytest.approx(2 / 16)]


def test_another_folder_of_kernels(tmp_path: Path) -> None:
    """A folder given by hand takes the place of the one that the run knew."""
    moved = replace(header(), reference="/gone/returns.py")
    run = run_of(tmp_path, moved, {1: 8000.0})
    (recording,) = recordings([run], KERNELS)
    assert recording.kernels == KERNELS
    decorated = replace(header(), reference=None, kernel="user.module.returns")
    (recording,) = recordings([run_of(tmp_path, decorated, {1: 8000.0})], KERNELS)
    assert recording.oracle.tasks[0].kernel == "returns"


def test_what_cannot_be_replayed(tmp_path: Path) -> None:
    """A kernel that is gone or has changed, and a run that timed nothing, are told in one line."""
    times = {1: 8000.0}
    gone = run_of(tmp_path, replace(header(), reference="/gone/returns.py"), times)
    assert f"run {gone.run}: its kernel is gone: kernel file /gone/returns.py" in refused(gone)
    assert "give the folder of returns.py by --kernels" in refused(gone)
    assert "returns.py: no such file" in refused(gone, tmp_path)
    bare = run_of(tmp_path, replace(header(), reference=None), times)
    assert "was no kernel module; give the folder of one by --kernels" in refused(bare)
    unknown = run_of(tmp_path, replace(header(), reference="retturns"), times)
    assert "unknown kernel 'retturns'" in refused(unknown)
    other_shape = replace(header(), key=replace(header().key, shape={"rows": 3}))
    assert "the shape lacks n" in refused(run_of(tmp_path, other_shape, times))
    other_dtype = replace(header(), key=replace(header().key, dtypes={"x_ptr": "fp8e5"}))
    message = refused(run_of(tmp_path, other_dtype, times))
    assert "no dtype of kernel returns (fp32) gives the run's arguments (x_ptr fp8e5)" in message
    nothing = TraceWriter(tmp_path, header())
    nothing.close()
    assert nothing.path is not None
    assert "no config was timed" in refused(read_trace(nothing.path))


def test_several_devices(tmp_path: Path) -> None:
    """Runs of different devices are not mixed."""
    other = replace(header(), key=replace(header().key, device="NVIDIA A100"))
    runs = [run_of(tmp_path, made, {1: 8000.0}) for made in (header(), other)]
    with pytest.raises(OracleError, match=r"several devices \(NVIDIA H200, NVIDIA A100\)"):
        recordings(runs)


def test_the_file_of_a_kernel() -> None:
    """A shipped kernel, a module of a package and a path have a file; anything else is refused."""
    assert kernel_file("matmul").name == "matmul.py"
    assert kernel_file("asmtune.kernels.matmul") == kernel_file("matmul")
    assert kernel_file(str(KERNELS / "returns.py")) == KERNELS / "returns.py"
    for wrong in ("matmull", "asmtune.kernels.matmull", "no.such.package", "absent.py", ""):
        with pytest.raises(InputError):
            kernel_file(wrong)
