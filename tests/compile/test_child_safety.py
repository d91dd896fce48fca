"""Children import nothing from the working directory, and end with whoever started them."""

from __future__ import annotations

import errno
import os
import resource
import signal
import subprocess
import sys
import time
import uuid
from contextlib import suppress
from pathlib import Path

import pytest

from asmtune.base.child import Child, ChildGoneError, module_command
from asmtune.base.errors import StoreError
from asmtune.compile.sandbox import Sandbox
from asmtune.measure.bench.child_bench import COMMAND as BENCH_CHILD
from asmtune.workshop.regression.processes import COMMAND as BENCH_PROCESS
from tests.compile.making import assembler
from tests.compile.process_tree import comes_true

ROOT = Path(__file__).parents[2]
SCRIPT = Path(__file__).with_name("compiling.py")
HOSTILE = ("json", "numbers", "triton", "asmtune", "torch", "runpy", "select", "pickle")


def environment(**more: str) -> dict[str, str]:
    """Variables for a script that imports the tests."""
    path = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]).strip(os.pathsep)
    return {**os.environ, "PYTHONPATH": path, **more}


def run(
    *arguments: str, folder: Path | None = None, **more: str
) -> subprocess.CompletedProcess[str]:
    """Run the script that compiles, until it ends."""
    return subprocess.run(
        [sys.executable, "-P", str(SCRIPT), *arguments],
        env=environment(**more),
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


@pytest.fixture
def hostile(tmp_path: Path) -> Path:
    """A folder of modules that leave a mark when they are imported."""
    folder = tmp_path / "hostile"
    folder.mkdir()
    for name in HOSTILE:
        (folder / f"{name}.py").write_text(
            f"open({str(folder / 'mark')!r}, 'a').write({name!r})\nraise SystemExit(9)\n"
        )
    return folder


@pytest.mark.slow(seconds=12)
def test_no_compile_imports_from_the_working_directory(hostile: Path) -> None:
    """The children of compiles execute nothing that lies there."""
    ended = run("two", folder=hostile)
    assert not (hostile / "mark").exists(), (hostile / "mark").read_text()
    assert (ended.returncode, ended.stdout) == (0, "3 compiled\n"), ended.stderr


@pytest.mark.slow(seconds=6)
@pytest.mark.parametrize("command", [BENCH_CHILD, BENCH_PROCESS])
def test_no_bench_imports_from_the_working_directory(
    command: tuple[str, ...], hostile: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither the process that times nor those of a bench run execute what lies there."""
    monkeypatch.chdir(hostile)
    child = Child(command)
    if command is BENCH_CHILD:
        assert child.receive(60) == {"ready": True}
    else:
        child.send({"rows": {}, "seed": 1, "path": []})
        with suppress(ChildGoneError):
            while "environment" in child.receive(60):
                pass
    child.kill()
    assert not (hostile / "mark").exists(), (hostile / "mark").read_text()


def test_the_users_python_path_stays_in_force(tmp_path: Path) -> None:
    """A child finds modules of PYTHONPATH, and asmtune where its parent has it from."""
    (tmp_path / "theirs.py").write_text("import asmtune\nprint(asmtune.__file__)\n")
    ended = subprocess.run(
        module_command("theirs"),
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert Path(ended.stdout.strip()) == ROOT / "asmtune" / "__init__.py"


def tagged(tag: str) -> dict[int, str]:
    """Live processes that have a variable of the environment, with their command lines."""
    found = {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if tag.encode() in (folder / "environ").read_bytes():
                line = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode()
                found[int(folder.name)] = line[:100]
        except (FileNotFoundError, ProcessLookupError, PermissionError):
            continue
    return found


@pytest.fixture
def sleeping_ptxas(tmp_path: Path) -> dict[str, str]:
    """Variables for an assembler that sleeps, in a program of its own."""
    return assembler(tmp_path / "ptxas", "sleep 300 &\nwait")


@pytest.mark.slow(seconds=8)
@pytest.mark.parametrize(
    ("phase", "number"),
    [
        *((p, signal.SIGKILL) for p in ("alone", "two", "idle", "bench")),
        *((p, signal.SIGTERM) for p in ("two", "bench")),
    ],
)
def test_nothing_outlives_its_parent(
    phase: str, number: signal.Signals, sleeping_ptxas: dict[str, str]
) -> None:
    """Workers, compilers, what these started and the process that times end with the parent."""
    tag = uuid.uuid4().hex
    variables = {} if phase in ("idle", "bench") else sleeping_ptxas
    parent = subprocess.Popen(
        [sys.executable, str(SCRIPT), phase],
        env=environment(ASMTUNE_TEST_TAG=tag, **variables),
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    try:
        assert parent.stdout is not None
        if variables:
            assert comes_true(lambda: "sleep 300" in str(tagged(tag)), 60), tagged(tag)
        else:
            assert "at work\n" in iter(parent.stdout.readline, "")
        assert len(tagged(tag)) > 1
        parent.send_signal(number)
        assert comes_true(lambda: not tagged(tag), 10), tagged(tag)
    finally:
        for pid in tagged(tag):
            os.kill(pid, signal.SIGKILL)
        parent.wait()
        parent.stdout.close()


@pytest.mark.slow(seconds=5)
def test_a_compile_keeps_to_the_users_limit_of_memory() -> None:
    """Under a hard limit of address space below asmtune's own, a compile goes on within it."""
    ended = subprocess.run(
        [sys.executable, str(SCRIPT), "alone"],
        env=environment(),
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (8 << 30, 8 << 30)),
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert (ended.returncode, ended.stdout) == (0, "3 compiled\n"), ended.stderr


@pytest.mark.slow(seconds=10)
def test_a_fork_after_a_parallel_report_compiles_as_well() -> None:
    """A process that forked off after children were in use has children of its own."""
    ended = run("then fork")
    assert (ended.returncode, ended.stdout) == (0, "3 compiled\n" * 3), ended.stderr


@pytest.mark.parametrize("error", [errno.ENOENT, errno.ENOSPC])
def test_full_temporary_folders_are_a_line(error: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """With no temporary folder left, a compiler says so in one line."""

    def full(*_: object) -> str:
        raise OSError(error, "No usable temporary directory found")

    monkeypatch.setattr("tempfile.tempdir", None)
    monkeypatch.setattr("tempfile._get_default_tempdir", full)
    sandbox = Sandbox(1 << 34)
    for use in (sandbox.begin, lambda: Sandbox(1 << 33).call(print)):
        with pytest.raises(StoreError, match="TMPDIR") as caught:
            use()
        assert "\n" not in str(caught.value)


@pytest.mark.parametrize("patience_s", [0.1, 20.0])
def test_a_dead_child_whose_pipe_is_held_is_gone(patience_s: float) -> None:
    """A child that dies while another process has its pipe open is not waited for any longer."""
    holder = "import subprocess, time; subprocess.Popen(['sleep', '60']); print('{}', flush=True)"
    child = Child([sys.executable, "-c", f"{holder}; time.sleep(60)"])
    try:
        assert child.receive(30) == {}
        os.kill(child.pid, signal.SIGKILL)
        assert comes_true(lambda: not child.is_running)
        start = time.monotonic()
        with pytest.raises(ChildGoneError):
            child.receive(patience_s)
        assert time.monotonic() - start < 15
    finally:
        child.kill()
