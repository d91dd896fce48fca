"""Tuning on GPUs of other hosts: real agents and processes, with this host in their place."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

from asmtune.base.errors import InputError, MeasureError
from asmtune.core.hardware import shipped
from asmtune.measure.bench import remote
from asmtune.measure.bench import remote_gpus as remotes
from asmtune.measure.bench.child_bench import ChildBench
from asmtune.measure.bench.dedup import gpus_of
from asmtune.measure.bench.links import RemoteAddress, open_links
from asmtune.measure.bench.remote import HostLostError, RemoteHost
from asmtune.measure.bench.remote_gpus import RemoteWarning, close_hosts, remote_gpus
from asmtune.tuning.options import EFFORTS, Choices, TuneOptions
from asmtune.tuning.request import TuningResult
from asmtune.tuning.search.base import BatchSizes
from asmtune.tuning.tuner import Tuner
from tests.bench.bench_support import entrant, setup
from tests.bench.remote_support import SUM_CHILD, far_python, script, stand_in_ssh
from tests.tuning_support import BEST, DEVICE, HostMachine, request, resolved, space, workshop


@pytest.fixture(autouse=True)
def hosts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Hosts are reached by a stand-in of ssh; all are closed at the end."""
    stand_in_ssh(tmp_path / "bin", monkeypatch)
    monkeypatch.setattr(shipped, "_chosen", [])
    yield
    close_hosts()


def far_tuner(folder: Path, devices: tuple[str, ...], **choices: Any) -> Tuner:
    """Make a tuner on GPUs elsewhere, with a store in a folder."""
    near = workshop(folder, HostMachine())  # it makes the folder and shares artifacts
    effort = replace(EFFORTS["balanced"], scorer="roofline")
    options = TuneOptions.of(Choices(effort=effort, devices=devices, **choices))
    _, made = Tuner.on_devices(options)
    settings = replace(near.funnel.settings, compiler=made.funnel.settings.compiler)
    return replace(made, store=near.store, funnel=replace(made.funnel, settings=settings))


def host(folder: Path, name: str, **wish: Any) -> str:
    """Return the address of a host, whose samples are counted in a folder of its name."""
    (folder / name).mkdir()
    child = [SUM_CHILD, str(folder / name), (wish.get("gpus") or [DEVICE])[0]]
    python = far_python(folder / f"{name}.python", child=child, **wish)
    return f"ssh://me@{name}?python={python}"


def outcome(result: TuningResult) -> Any:
    """Return what a record says, without its versions, its date and numbers of samples.

    Configs of a short list are timed as they come, so that a race asks some of them more often.
    """
    record = result.record
    assert record is not None, result.error
    return record.key, record.winner, timings(result), set(record.failures)


@cache
def here() -> TuningResult:
    """Return what a GPU of this host gives."""
    with TemporaryDirectory() as folder:
        return resolved(workshop(Path(folder), HostMachine()))


def timings(result: TuningResult) -> dict[str, float]:
    """Return the median of each config."""
    assert result.record is not None, result.error
    return {str(m.config): m.median_us for m in result.record.measurements}


@pytest.mark.slow(seconds=12)
def test_records_are_those_of_a_gpu_here(tmp_path: Path) -> None:
    """One GPU elsewhere gives the record that the same clock gives here, under its own name."""
    tuner = far_tuner(tmp_path / "far", (host(tmp_path, "a", gpus=[DEVICE]),))
    result = resolved(tuner)
    assert outcome(result) == outcome(here())
    assert result.record is not None
    assert result.record.winner == BEST
    assert result.record.key.device == DEVICE
    assert result.record.provenance.driver == "1.2.3"
    assert resolved(tuner).outcome == "known"


def agents(folder: Path) -> list[int]:
    """Return the ids of the agents of a test's folder, and of what they have started."""
    running = []
    for path in Path("/proc").glob("[0-9]*/environ"):
        with suppress(OSError):  # it has ended meanwhile, or is another user's
            variables = path.read_bytes()
            if b"STAND_IN=" in variables and str(folder).encode() in variables:
                running.append(int(path.parent.name))
    return running


def no_agents(folder: Path) -> bool:
    """Return whether all agents end within seconds."""
    end = time.monotonic() + 15
    while agents(folder) and time.monotonic() < end:
        time.sleep(0.05)
    return not agents(folder)


def samples(folder: Path, name: str) -> int:
    """Return how many samples a host has taken."""
    path = folder / name / "samples"
    return len(path.read_text()) if path.exists() else 0


def kill_after(folder: Path, name: str, count: int) -> threading.Thread:
    """Kill a host's agent, as a host that goes down does, once it has taken so many samples."""

    def wait() -> None:
        end = time.monotonic() + 60
        while samples(folder, name) < count and time.monotonic() < end:
            time.sleep(0.01)
        for opened in remotes._opened.values():
            for one in opened.hosts:
                if one.name == f"ssh://{name}":
                    os.kill(one._link.pid, signal.SIGKILL)  # type: ignore[attr-defined]

    thread = threading.Thread(target=wait)
    thread.start()
    return thread


@pytest.mark.slow(seconds=10)
def test_a_host_that_dies_is_done_without(tmp_path: Path) -> None:
    """Its share goes to the other host; the record is as always, and no process is left."""
    addresses = host(tmp_path, "a", gpus=[DEVICE]), host(tmp_path, "b", gpus=[DEVICE])
    tuner = far_tuner(tmp_path / "far", addresses)
    (tmp_path / "a" / "slow").touch()
    killing = kill_after(tmp_path, "a", 6)
    result = resolved(tuner)
    killing.join()
    assert result.record is not None
    assert result.record.winner == BEST
    assert not result.record.failures  # the config that ran then is not to blame
    assert result.record.key == request(tuner).key
    assert samples(tmp_path, "b") > 0
    close_hosts()
    assert no_agents(tmp_path)


@pytest.mark.slow(seconds=8)
def test_the_config_that_ran_is_not_charged(tmp_path: Path) -> None:
    """A host that dies while the last config of a trial runs is lost; the config has not failed."""
    (gpu,) = remote_gpus(f"ssh://a?python={far_python(tmp_path / 'python', gpus=[DEVICE])}")
    bench = ChildBench(setup(), gpu)
    bench.begin(entrant("good"))
    pid = gpu.host._link.pid  # type: ignore[attr-defined]
    threading.Timer(1.0, os.kill, (pid, signal.SIGKILL)).start()
    with pytest.raises(HostLostError, match="what was timed is kept"):
        bench.trial([entrant("hang")])
    bench.close()


@pytest.mark.slow(seconds=12)
def test_the_only_host_dies(tmp_path: Path) -> None:
    """One line says so; what was timed is kept, and the next run goes on from there."""
    address = host(tmp_path, "a", gpus=[DEVICE])
    tuner = far_tuner(tmp_path / "far", (address,))
    tuner = replace(tuner, options=replace(tuner.options, effort=SMALL_STEPS))
    (tmp_path / "a" / "slow").touch()
    killing = kill_after(tmp_path, "a", 40)
    (result,) = tuner.results([request(tuner)])
    killing.join()
    assert result.outcome == "failed"
    assert result.error.startswith("ssh://a: lost (its connection died with SIGKILL")
    assert "what was timed is kept" in result.error
    assert len(result.error.splitlines()) == 1
    kept = tuner.store.earlier_outcomes(result.request.key, result.request.expected).measurements
    assert kept
    (tmp_path / "a" / "slow").unlink()
    again = resolved(tuner)
    assert again.record is not None
    assert again.record.winner == BEST
    assert again.timed + len(kept) <= 22  # 20 configs, and caps


SMALL_STEPS = replace(
    EFFORTS["exhaustive"],
    scorer="roofline",
    pace=BatchSizes(first=4, batch=4, trial=2),
    policy=replace(EFFORTS["quick"].policy),
)


@pytest.mark.slow(seconds=8)
def test_a_host_that_falls_silent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is lost once its silence is longer than any config may run, which has not failed then."""
    monkeypatch.setattr(remote, "SILENCE_S", 3.0)
    (gpu,) = remote_gpus(f"ssh://a?python={far_python(tmp_path / 'python', gpus=[DEVICE])}")
    bench = ChildBench(setup(run_timeout_s=1.0), gpu)
    bench.begin(entrant("good"))
    assert len(agents(tmp_path)) == 2
    pid = gpu.host._link.pid  # type: ignore[attr-defined]
    threading.Timer(0.5, os.kill, (pid, signal.SIGSTOP)).start()
    with pytest.raises(HostLostError, match=r"ssh://a: lost .nothing was heard of it for 3 s"):
        bench.trial([entrant("hang")])
    bench.close()
    assert no_agents(tmp_path)


def test_a_slow_host_with_a_banner(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What its shell prints first is skipped; its PyTorch may need longer than a silence."""
    monkeypatch.setattr(remote, "SILENCE_S", 2.0)
    agent = far_python(tmp_path / "agent", probe_s=2.4)
    banner = "echo Welcome to a; echo 42; echo; printf 'disk: \\303(87%% full) {'"
    python = script(tmp_path / "python", f'{banner}; exec {agent} "$@"')
    assert len(remote_gpus(f"ssh://a?python={python}")) == 2


@pytest.mark.parametrize(
    ("says", "told"),
    [
        ("echo This account is not available; exit 1", "start .This account is not available.:"),
        ("echo '{\"beat\": true}'; echo Bye; cat", "what it says is no message of asmtune"),
    ],
)
def test_a_host_of_other_words(says: str, told: str, tmp_path: Path) -> None:
    """What speaks there and is no agent is told at once, not waited for."""
    with pytest.raises(InputError, match=told) as raised:
        remote_gpus(f"ssh://a?python={script(tmp_path / 'python', says)}")
    assert len(str(raised.value).splitlines()) == 1


def test_a_process_that_cannot_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is told why; the host and its other processes go on."""
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")
    (gpu,) = remote_gpus(host(tmp_path, "a", gpus=[DEVICE]))
    for _ in range(2):
        child = gpu.host.start("time", gpu=7)
        with pytest.raises(MeasureError, match="ssh://a: GPU 7: CUDA_VISIBLE_DEVICES=0 shows 1"):
            child.receive(30)
        assert str(child.kill()) == "was ended"
    assert not gpu.host.is_lost


def test_one_gpu_by_two_addresses(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two processes would disturb each other's timings; of a cluster's workers one times."""
    one, other = (host(tmp_path, name, gpus=[DEVICE], uuid="same") for name in "ab")
    with pytest.raises(InputError, match="ssh://b GPU 0 is GPU ssh://a GPU 0 too: name it once"):
        gpus_of((one, other))
    links = [link for text in (one, other) for link in open_links(RemoteAddress.parse(text), "60")]
    monkeypatch.setattr(remotes, "open_links", lambda *_: iter(links))
    with pytest.warns(RemoteWarning, match="ssh://b: its GPU is that of ssh://a too"):
        assert len(remote_gpus("dask://a")) == 1


def test_interrupted_while_it_connects(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-C leaves no agent there."""

    def interrupt(_: RemoteHost) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(remotes, "_check", interrupt)
    with pytest.raises(KeyboardInterrupt):
        remote_gpus(host(tmp_path, "a"))
    assert no_agents(tmp_path)


def about(**versions: str) -> dict[str, Any]:
    """Return what a host of other versions says."""
    return {"gpus": [DEVICE], "about": versions}


BAD = {
    "other asmtune": (about(asmtune="9.9"), r"ssh://a: asmtune 9\.9 there, .* install the same"),
    "no GPU": ({"gpus": []}, "ssh://a: no CUDA GPU there that PyTorch can use"),
    "no torch": (about(problem="no libcuda.so"), "cannot be used .no libcuda.so"),
}


@pytest.mark.parametrize("case", BAD)
def test_hosts_that_cannot_time(case: str, tmp_path: Path) -> None:
    """What is wrong there is told in one line before anything is timed."""
    wish, says = BAD[case]
    with pytest.raises(InputError, match=says) as raised:
        remote_gpus(host(tmp_path, "a", **wish))
    assert len(str(raised.value).splitlines()) == 1
    assert samples(tmp_path, "a") == 0


def test_gpus_of_a_host(tmp_path: Path) -> None:
    """All GPUs of a host count, or those that are named; one that is not there is refused."""
    address = host(tmp_path, "a", gpus=[DEVICE, DEVICE, DEVICE])
    assert [str(gpu) for gpu in remote_gpus(address)] == [f"ssh://a GPU {i}" for i in range(3)]
    assert [gpu.index for gpu in remote_gpus(address + "&gpu=2")] == [2]
    with pytest.raises(InputError, match=r"ssh://a: no GPU 3: there are 3, from 0 on"):
        remote_gpus(address + "&gpu=3")


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("ssh://down", r"ssh cannot connect .connect to host down: refused.: make `ssh down true`"),
        ("ssh://up?python=/no/python", "its python does not start .*python=/opt/venv"),
        ("ssh://up?python=true", "its agent does not start .ended with exit code 0.: run `exec"),
    ],
)
def test_hosts_that_do_not_answer(text: str, says: str) -> None:
    """Why no agent starts is told in one line, with what to do."""
    with pytest.raises(InputError, match=says) as raised:
        remote_gpus(text)
    assert len(str(raised.value).splitlines()) == 1


def test_no_asmtune_there(tmp_path: Path) -> None:
    """A Python without asmtune is told apart."""
    bare = script(tmp_path / "bare", f'exec {sys.executable} -I -S "$@"')
    with pytest.raises(InputError, match=r"no asmtune there, or another .*install asmtune"):
        remote_gpus(f"ssh://up?python={bare}")


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("sssh://a", "unknown scheme 'sssh'; did you mean ssh.: give ssh://user@host"),
        ("ssh://", "'ssh://' names no host"),
        ("ssh://-oProxyCommand=x", "no name of a host"),
        ("ssh://-l@a", "no name of a host"),
        ("ssh://me:secret@a", "ssh://a: passwords are not taken"),
        ("ssh://a:seven", "a port is a number from 1 to 65535"),
        ("ssh://a:70000", "a port is a number from 1 to 65535"),
        ("ssh://a/b", "an address has no path"),
        ("ssh://[a", "Invalid IPv6 URL"),
        ("ssh://a?pyton=x", "unknown option 'pyton': the options of ssh are python, gpu"),
        ("dask://a?gpu=1", "the options of dask are python, workers"),
        ("ray://a?workers=0", "workers=2 a number"),
        ("ssh://a?gpu=x", "gpu=0&gpu=1 are indices"),
    ],
)
def test_addresses(text: str, says: str) -> None:
    """A malformed address is refused in one line that shows no password."""
    with pytest.raises(InputError, match=says) as raised:
        remote_gpus(text)
    assert len(str(raised.value).splitlines()) == 1
    assert "secret" not in str(raised.value)


@pytest.mark.slow(seconds=20)
def test_compiled_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another Triton there is told, compiles for its GPU, and is what the record is made with."""
    address = host(tmp_path, "a", **about(triton="99.1.0"))
    with pytest.warns(RemoteWarning, match=r"Triton is .* here, and not there .ssh://a: 99.1.0"):
        tuner = far_tuner(tmp_path / "far", (address,))
    started: list[str] = []
    start = RemoteHost.start

    def counted(far: RemoteHost, program: str, *arguments: Any, **options: Any) -> Any:
        started.append(program)
        return start(far, program, *arguments, **options)

    monkeypatch.setattr(RemoteHost, "start", counted)
    result = resolved(tuner, space(warps=(4, 8)))
    assert result.record is not None, result.error
    assert result.record.winner == BEST
    assert 1 <= started.count("compile") < len(result.record.measurements)
    assert result.record.provenance.triton == "99.1.0"
    assert request(tuner).expected.triton != "99.1.0"
    with pytest.raises(InputError, match=r"--compile-at remote"):
        Tuner.on_devices(replace(tuner.options, compile_at="home"))


def test_another_python(tmp_path: Path) -> None:
    """It is told at once, and nothing that only this one could load is sent there."""
    address = host(tmp_path, "a", **about(python="3.99.1"))
    with pytest.warns(RemoteWarning, match=r"Python 3\.99\.1 there, .*cannot be sent"):
        (gpu,) = remote_gpus(address)
    with pytest.raises(InputError, match=r"Python 3\.99\.1 there cannot load functions of yours"):
        ChildBench(setup(checks={"reference": dict}), gpu)


@pytest.mark.slow(seconds=10)
def test_other_gpu(tmp_path: Path) -> None:
    """Timings of one model are not stored as those of another."""
    address = host(tmp_path, "a", gpus=["NVIDIA A100-SXM4-40GB"])
    other = workshop(tmp_path / "near", HostMachine(), devices=(address,))
    other.opener = None
    (result,) = other.results([request(other)])
    assert "NVIDIA A100-SXM4-40GB is there, and the config is for NVIDIA H200" in result.error
