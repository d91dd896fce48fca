"""Tuning on the workers of a Dask or Ray cluster: real clusters of two workers on this machine."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from asmtune.base.errors import InputError, MissingPackageError
from asmtune.core.hardware import shipped
from asmtune.measure.bench import links
from asmtune.measure.bench.remote_gpus import close_hosts, remote_gpus
from tests.bench.remote_support import SUM_CHILD, far_python
from tests.tuning.test_remote import far_tuner, here, no_agents, outcome, samples, timings
from tests.tuning_support import BEST, DEVICE, resolved


@pytest.fixture(autouse=True)
def hosts(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Close all connections at the end."""
    monkeypatch.setattr(shipped, "_chosen", [])
    yield
    close_hosts()


@pytest.fixture
def dask() -> Iterator[Any]:
    """A scheduler with two worker processes, each of which declares a GPU."""
    distributed = pytest.importorskip("distributed", reason="no dask: pip install '.[clusters]'")
    with distributed.LocalCluster(
        n_workers=2, threads_per_worker=1, dashboard_address=None, resources={"GPU": 1}
    ) as cluster:
        yield cluster


def python_of(folder: Path, name: str) -> Path:
    """Write a Python whose agents stand in for a GPU; their samples are counted in a folder."""
    (folder / name).mkdir()
    child = [SUM_CHILD, str(folder / name), DEVICE]
    return far_python(folder / f"{name}.python", child=child, gpus=[DEVICE])


@pytest.mark.slow(seconds=40)
def test_dask(dask: Any, tmp_path: Path) -> None:
    """Two workers give the timings of a GPU here; one that is killed is done without."""
    address = dask.scheduler_address.replace("tcp://", "dask://")
    address += f"?python={python_of(tmp_path, 'a')}"
    tuner = far_tuner(tmp_path / "far", (address,))
    assert len(remote_gpus(address)) == 2
    (tmp_path / "a" / "slow").touch()
    victim = next(iter(dask.workers.values())).process.pid

    def kill() -> None:
        end = time.monotonic() + 60
        while samples(tmp_path, "a") < 6 and time.monotonic() < end:
            time.sleep(0.01)
        os.kill(victim, signal.SIGKILL)

    killing = threading.Thread(target=kill)
    killing.start()
    result = resolved(tuner)
    killing.join()
    assert result.record is not None, result.error
    assert result.record.winner == BEST
    assert not result.record.failures
    near, far = timings(here()), timings(result)
    common = near.keys() & far.keys()
    assert len(common) > 10
    assert {config: far[config] for config in common} == {c: near[c] for c in common}
    assert outcome(result)[0] == outcome(here())[0]
    close_hosts()
    assert no_agents(tmp_path)


def test_no_scheduler(monkeypatch: pytest.MonkeyPatch) -> None:
    """A scheduler that does not answer is told in one line."""
    monkeypatch.setattr(links, "_CONNECT_S", 0.5)
    pytest.importorskip("distributed", reason="no dask: pip install '.[clusters]'")
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        address = f"dask://127.0.0.1:{unused.getsockname()[1]}"
        with pytest.raises(InputError, match="no Dask scheduler answers") as raised:
            remote_gpus(address)
    assert len(str(raised.value).splitlines()) == 1


@pytest.mark.parametrize(("scheme", "package"), [("dask", "distributed"), ("ray", "ray")])
def test_no_package(scheme: str, package: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the package one line says how to install it."""
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(MissingPackageError, match=r"pip install 'asmtune\[clusters\]'"):
        remote_gpus(f"{scheme}://a")


@pytest.mark.slow(seconds=45)
def test_ray(tmp_path: Path) -> None:
    """Two actors give the timings of a GPU here, and leave no process."""
    pytest.importorskip("ray", reason="no ray: pip install '.[clusters]'")
    root = Path(__file__).parents[2]
    address = f"ray://127.0.0.1?python={python_of(tmp_path, 'a')}"
    command = [sys.executable, "-m", "tests.bench.ray_process", str(tmp_path / "far"), address]
    environment = {**os.environ, "RAY_USAGE_STATS_ENABLED": "0", "PYTHONPATH": str(root)}
    done = subprocess.run(
        command, env=environment, capture_output=True, text=True, check=False, cwd=root, timeout=300
    )
    assert done.returncode == 0, done.stderr[-3000:]
    answer = json.loads(done.stdout.splitlines()[-1])
    assert answer["winner"] == str(outcome(here())[1])
    near, far = timings(here()), answer["timed"]
    common = near.keys() & far.keys()
    assert len(common) > 10
    assert {config: far[config] for config in common} == {c: near[c] for c in common}
    assert len(answer["gpus"]) == 2
    assert answer["clean"]
