"""`asmtune tune`: what it takes, what it hands to the library, and what it prints."""

from __future__ import annotations

import json
import re
import weakref
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
import torch

from asmtune.base.fingerprint import versions
from asmtune.core.config import Config
from asmtune.core.hardware.shipped import load_target
from asmtune.core.kernel_module import load_kernel_module
from asmtune.core.problem import Problem
from asmtune.core.records.tuned import Measurement, Provenance, TuneKey, TuneRecord
from asmtune.core.space.space import Space
from asmtune.measure.accuracy import Bound
from asmtune.runtime.offline import tuning_queue
from asmtune.runtime.offline.recorded_keys import RecordedKey, add_keys
from asmtune.tuning.options import TuneOptions
from asmtune.tuning.request import TuningRequest, TuningResult
from tests.command_lines import Commands

MADE = versions()
PROVENANCE = Provenance(
    "s" * 64, "t" * 64, MADE["triton"], MADE["torch"], MADE["asmtune"], "0", "2025-03-04"
)
WINNER = Config({"BLOCK": 256}, num_warps=4)


def tuned(job: TuningRequest, us: float = 10.0) -> TuningResult:
    """A job whose winner is twice as fast as its default."""
    timing = Measurement(WINNER, us, us, us, (us,))
    record = TuneRecord(job.key, WINNER, (timing,), PROVENANCE)
    return TuningResult(job, "tuned", record, "20250304-050607-x-06be", 1.5, 2 * us, 4, 3)


def known(job: TuningRequest) -> TuningResult:
    """A job that the store knew, the default's time among the others."""
    record = tuned(job).record
    assert record is not None
    default = Measurement(Config({"BLOCK": 128}, num_warps=2), 30.0, 30.0, 30.0, (30.0,))
    timings = (*record.measurements, default)
    return TuningResult(job, "known", replace(record, measurements=timings))


def failed(job: TuningRequest) -> TuningResult:
    """A job of which nothing ran."""
    return TuningResult(job, "failed", seconds=1.0, error="no config\nof doubled can run")


def interrupted(job: TuningRequest) -> TuningResult:
    """The user has had enough."""
    raise KeyboardInterrupt


@dataclass
class FakeWorkshop:
    """Stands for the GPU: gives each job the result that the test has written down."""

    answers: list[Callable[[TuningRequest], TuningResult]]
    jobs: list[TuningRequest] = field(default_factory=list)
    used: list[TuneOptions | None] = field(default_factory=list)
    options: TuneOptions | None = None
    audience: Any = None

    def request(
        self, problem: Problem, key: TuneKey, space: Space, reference: str | None = None
    ) -> TuningRequest:
        """As the real one."""
        return TuningRequest(problem, key, space, reference=reference)

    def results(self, jobs: Sequence[TuningRequest]) -> Iterator[TuningResult]:
        """As the real one."""
        for job in jobs:
            self.jobs.append(job)
            self.used.append(self.options)
            yield self.answers[len(self.jobs) - 1](job)


@pytest.fixture
def workshop(monkeypatch: pytest.MonkeyPatch) -> FakeWorkshop:
    """A workshop in the place of the GPU's; tensors are made in the host's memory."""
    fake = FakeWorkshop([])

    def opened(options: TuneOptions, audience: Any) -> tuning_queue.TuningGpu:
        fake.options, fake.audience = options, audience
        return tuning_queue.TuningGpu("NVIDIA H200", "cpu", fake)  # type: ignore[arg-type]

    monkeypatch.setattr(tuning_queue, "open_machine", opened)
    monkeypatch.setattr(tuning_queue, "target_here", lambda: load_target("H200"))
    return fake


def test_what_a_job_is(workshop: FakeWorkshop, commands: Commands) -> None:
    """A job has tensors with memory, the key that a decorator would have, and the module's path."""
    workshop.answers = [tuned, tuned]
    commands.run("tune", "{}/doubled.py", "--shape", "n=128", "--dtype", "fp32")
    (job,) = workshop.jobs
    x = job.problem.arguments["x_ptr"]
    assert (x.device.type, x.dtype, x.shape) == ("cpu", torch.float32, (128,))
    assert (job.key.shape, job.key.dtypes) == ({"n": 128}, {"x_ptr": "fp32"})
    assert job.key.device == "NVIDIA H200"
    assert job.key.kernel.endswith(".kernel")
    assert job.reference == str(commands.folder.resolve() / "doubled.py")
    assert workshop.jobs[0].space.axes["BLOCK"] == (128, 256)


def test_the_key_of_a_kernel_with_buckets(workshop: FakeWorkshop, commands: Commands) -> None:
    """Buckets and contracts of the decorator's key are part of it."""
    workshop.answers = [tuned]
    commands.run("tune", "rmsnorm_backward", "--shape", "rows=1000,cols=96")
    (job,) = workshop.jobs
    assert job.key.shape == {"pow2(rows)": 1024, "cols": 96, "MULTIPLE": 32}


def test_what_a_decorator_says_of_foreign_writes_holds(
    workshop: FakeWorkshop, commands: Commands
) -> None:
    """A module that decorates its kernel tells by that whether it may be launched many times."""
    file = commands.folder / "doubled.py"
    told = "from asmtune import asm_autotune\n" + file.read_text()
    told += "fast = asm_autotune(space=space(), restore_value=print)(kernel)\n"
    (commands.folder / "told.py").write_text(told)
    workshop.answers = [tuned]
    commands.run("tune", "{}/told.py", "--shape", "n=128")
    assert workshop.options is not None
    assert workshop.options.checks.restore is print


def test_shapes_of_options_and_file(workshop: FakeWorkshop, commands: Commands) -> None:
    """Shapes of options and of a file come in order, and each once; JSON has all of a result."""
    (commands.folder / "shapes.txt").write_text("n=64\nn=32\n")
    workshop.answers = [tuned] * 3
    ran = commands.run(
        "tune", "{}/doubled.py", "--shape", "n=32", "--shape", "n=8", "--shapes", "{}/shapes.txt",
        "--format", "json",
    )  # fmt: skip
    document = json.loads(ran.out)
    assert (document["format"], document["version"]) == ("asmtune-tuning", 1)
    assert [result["shape"] for result in document["results"]] == [{"n": 32}, {"n": 8}, {"n": 64}]
    assert document["results"][0] == {
        "kernel": workshop.jobs[0].key.kernel, "shape": {"n": 32}, "dtypes": {"x_ptr": "fp16"},
        "device": "NVIDIA H200", "outcome": "tuned", "run": "20250304-050607-x-06be",
        "winner": WINNER.to_dict(), "median_us": 10.0, "remark": None, "error": None,
        "earlier": None,
        "statistics": {"samples": 1, "p50_us": 10.0, "p90_us": 10.0, "p99_us": 10.0},
        "default_us": 20.0, "speedup": 2.0, "compiled": 4, "timed": 3, "seconds": 1.5,
    }  # fmt: skip


def test_another_tritons_record_was_timed_again(workshop: FakeWorkshop, commands: Commands) -> None:
    """The old time and its Triton are beside the new one, in table, line and JSON."""

    def retimed(job: TuningRequest) -> TuningResult:
        earlier = tuned(job, 12.5).record
        assert earlier is not None
        old = replace(earlier, provenance=replace(PROVENANCE, triton="3.1.0"))
        return replace(tuned(job), earlier=old)

    workshop.answers = [retimed, retimed]
    asked = ("tune", "{}/doubled.py", "--shape", "n=32")
    ran = commands.run(*asked)
    assert all(words in ran.out for words in ("was us", "12.5", "with triton", "3.1.0"))
    assert "the fastest of 12.5 us with triton 3.1.0, timed again" in " ".join(ran.err.split())
    document = json.loads(commands.run(*asked, "--format", "json").out)
    assert document["results"][0]["earlier"] == {"triton": "3.1.0", "median_us": 12.5}


def test_options(workshop: FakeWorkshop, commands: Commands) -> None:
    """What is asked for reaches the library; by default configs run in a process of their own."""
    workshop.answers = [tuned] * 4

    def options(*given: str) -> TuneOptions:
        commands.run("tune", "{}/doubled.py", "--shape", "n=8", *given)
        assert workshop.options is not None
        return workshop.options

    usual = options()
    assert (usual.effort.name, usual.isolate) == ("balanced", True)
    assert (usual.seed, usual.force) == (0, False)
    asked = options(
        "--effort", "quick", "--seconds", "2.5", "--compiles", "7", "--no-isolate", "--seed", "3",
        "--force", "--check", "bits",
    )  # fmt: skip
    limits = asked.effort.limits
    assert (asked.effort.name, limits.seconds, limits.compiles) == ("quick", 2.5, 7)
    assert (asked.isolate, asked.seed, asked.force) == (False, 3, True)
    assert asked.checks.bits_equal
    bounded = options("--check", "p99=3e-2, clip=0.03,nonfinite=1")
    assert bounded.checks.accuracy == Bound(p99=3e-2, clip=0.03, nonfinite=1)


def test_known_before(workshop: FakeWorkshop, commands: Commands) -> None:
    """What the store knew is said to be known, and took no compile."""
    workshop.answers = [known, tuned]
    ran = commands.run("tune", "{}/doubled.py")
    assert "doubled n=4096: 10.0 us, known before" in ran.err
    assert "2 problems: 1 tuned, 1 known" in ran.out
    assert re.search(r"n=4096 .*10\.0 │ +30\.0 │ +3\.00 .*known before\n", ran.out)


def test_one_that_fails(workshop: FakeWorkshop, commands: Commands) -> None:
    """A shape that cannot be tuned stops no other; its error is shown, and the exit code is 1."""
    workshop.answers = [failed, tuned, failed, failed]
    ran = commands.run("tune", "{}/doubled.py")
    assert ran.code == 1
    assert "doubled n=4096: failed: no config of doubled can run" in ran.err
    assert "n=4096: no config of doubled can run" in ran.out
    assert "2 problems: 1 tuned, 1 failed" in ran.out
    assert commands.run("tune", "{}/doubled.py").code == 1


def test_one_shape_at_a_time(commands: Commands) -> None:
    """The tensors of a shape are gone before those of the next are made."""
    module = load_kernel_module(str(commands.folder / "doubled.py"))
    queue = tuning_queue.TuningQueue(module, "fp16", module.space(), "doubled.py")
    tensors: list[Any] = []

    class Watching(FakeWorkshop):
        def results(self, jobs: Sequence[TuningRequest]) -> Iterator[TuningResult]:
            assert [seen() for seen in tensors] == [None] * len(tensors)
            tensors.append(weakref.ref(jobs[0].problem.arguments["x_ptr"]))
            yield tuned(jobs[0])

    machine = tuning_queue.TuningGpu("NVIDIA H200", "cpu", Watching([]))  # type: ignore[arg-type]
    results = list(queue.results(queue.check(module.shapes), machine))
    assert len(tensors) == 2
    devices = [result.request.problem.arguments["x_ptr"].device.type for result in results]
    assert devices == ["meta", "meta"]


def test_ctrl_c(workshop: FakeWorkshop, commands: Commands) -> None:
    """What was done is shown, what to do is said, and the exit code is 130."""
    workshop.answers = [tuned, interrupted]
    ran = commands.run("tune", "{}/doubled.py")
    assert ran.code == 130
    assert "n=4096" in ran.out
    assert "interrupted: 1 of 2 shapes are done; they are stored: the same command" in ran.err
    workshop.answers, workshop.jobs = [interrupted], []
    ran = commands.run("tune", "{}/doubled.py")
    assert (ran.code, ran.out) == (130, "")
    assert "0 of 2 shapes are done" in ran.err


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ("", "Missing argument"),
        ("{}/doubled.py --shape m=1", "--shape: kernel doubled: the shape lacks n"),
        ("{}/doubled.py --shapes {}/plain.py", "plain.py, line 1: "),
        ("{}/doubled.py --effort balance", "did you mean balanced?"),
        ("{}/doubled.py --check same", "check='same': give 'close', 'bits'"),
        ("{}/doubled.py --check p98=1", "no limit is called 'p98'; they are max_abs"),
        ("{}/doubled.py --seconds nan", "--seconds: nan is no number above 0"),
        ("{}/doubled.py --compiles 0", "--compiles"),
    ],
)
def test_bad_input(arguments: str, says: str, workshop: FakeWorkshop, commands: Commands) -> None:
    """Every mistake is one line, before anything is tuned."""
    assert says in commands.refused("tune", *arguments.split())
    assert workshop.options is None


SERVES = """
import torch, triton, triton.language as tl

@triton.autotune(configs=[triton.Config({"BLOCK": b}) for b in (128, 256)], key=["n"])
@triton.jit
def double(x_ptr, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(x_ptr + at, tl.load(x_ptr + at, mask=at < n) * 2, mask=at < n)

if __name__ == "__main__":
    raise SystemExit("a program with its weights")
"""


def recorded(commands: Commands, *sizes: int) -> str:
    """A file of a script's keys, which another process has written."""
    script = commands.folder / "serves.py"
    script.write_text(SERVES)
    keys = []
    for n in sizes:
        form = {"region": 0, "pointer": 0, "device": "cpu", "dtype": "float16"}
        memory = {"device": "cpu", "pinned": False, "first": 0, "bytes": 2 * n, "at": 0}
        arguments = {"x_ptr": {"tensor": {**form, "shape": [n], "strides": [1]}}, "n": n}
        key = RecordedKey(
            kernel="__main__.double",
            module="__main__",
            file=str(script),
            shape={"n": n},
            dtypes={},
            device="",
            source="",
            buckets=(),
            positional=("x_ptr", "n"),
            arguments=arguments,
            memory=(memory,),
            contents={},
            grid={"reads": [], "sizes": [[[], [1, 1, 1]]]},
        )
        keys.append(key)
    add_keys(commands.folder / "keys.json", keys)
    return str(commands.folder / "keys.json")


def test_recorded_keys(workshop: FakeWorkshop, commands: Commands) -> None:
    """Each key is tuned under its program's name for it, on the GPUs that are named."""
    path = recorded(commands, 64, 65)
    workshop.answers = [tuned, failed]
    ran = commands.run("tune", "--from", path, "--effort", "quick")
    assert ran.code == 1, ran.err
    assert ran.out.startswith("__main__.double fp16 on NVIDIA H200\n")
    assert "n=64" in ran.out
    assert "n=65: no config of doubled can run" in ran.out
    first, second = workshop.jobs
    assert (first.key.kernel, first.key.shape) == ("__main__.double", {"n": 64})
    assert first.key.dtypes == {"x_ptr": "fp16"}
    x = second.problem.arguments["x_ptr"]
    assert (x.shape, x.dtype, float(x.float().std()) > 0.5) == ((65,), torch.float16, True)
    assert [config.kwargs["BLOCK"] for config in first.space.configs()] == [128, 256]
    changed = "asmtune: kernel __main__.double has changed since its keys were recorded: tuned as"
    assert ran.err.count(changed) == 1


ROWS = """
import torch, triton, triton.language as tl

@triton.autotune([triton.Config({"BLOCK": b}) for b in (64, 128)], key=["n"],
                 reset_to_zero=["out"])
@triton.jit
def double(x, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + at, tl.load(x + at, mask=at < n) * 2, mask=at < n)

@triton.jit
def negate(x, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(x + at, -tl.load(x + at, mask=at < n), mask=at < n)

def host(x):
    out, n = torch.empty_like(x), x.numel()
    double[lambda values: (triton.cdiv(n, values["BLOCK"]),)](x, out, n)
    negate[(triton.cdiv(n, 64),)](out, n, BLOCK=64)
    return out
"""


def test_a_host_function(workshop: FakeWorkshop, commands: Commands) -> None:
    """Its launches are tuned on tensors of the GPU, under the keys that its importers look up."""
    (commands.folder / "rows.py").write_text(ROWS)
    workshop.answers = [tuned] * 3
    host = ("tune", "{}/rows.py:host", "--arg", "x=fp16[32,32]")
    ran = commands.run(*host)
    assert ran.code == 0, ran.err
    double, negate = workshop.jobs
    assert (double.key.kernel, double.key.shape["n"]) == ("rows.double", 1024)
    assert [config.kwargs["BLOCK"] for config in double.configs()] == [64, 128]
    own, plain = (options.checks for options in workshop.used if options is not None)
    assert (own.reset_to_zero, plain.reset_to_zero) == (("out",), ())
    x, out = (double.problem.arguments[name] for name in ("x", "out"))
    assert (x.device.type, len(x.unique()) > 100, bool(x.equal(out))) == ("cpu", True, False)
    assert negate.key.kernel == "rows.negate"
    assert {config.num_warps for config in negate.configs()} == {1, 2, 4, 8}
    commands.run(*host, "--kernel", "double", "--axis", "BLOCK=256")
    (config,) = workshop.jobs[2].configs()
    assert config.kwargs == {"BLOCK": 256}
    line = commands.refused("tune", "{}/doubled.py", "--arg", "n=1")
    assert "are for a function" in line
