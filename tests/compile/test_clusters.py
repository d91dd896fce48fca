"""A user's Dask or Ray cluster compiles, by `joblib.parallel_config` and no line of ours."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from dataclasses import replace
from typing import Any

import joblib
import pytest

from asmtune.base.settings import Settings
from asmtune.compile.artifacts import ArtifactCache
from asmtune.compile.lower import Lowering
from asmtune.compile.pool import Hooks, compile_configs, sketch_configs
from asmtune.compile.worker import CompiledConfig
from asmtune.compile.workers import Workers
from asmtune.core.config import Config
from asmtune.core.hardware.model import Target
from asmtune.core.progress import ProgressListener
from asmtune.core.records.artifacts import Artifact, Failure
from asmtune.predict.prune.front import Front
from tests.compile.readings import admit, digest_of, where
from tests.sample_kernels import row_sum_problem, scale_problem

pytestmark = pytest.mark.slow

ALONE = "ASMTUNE_TESTS_ALONE"
"""Set where this file is all that runs: a Ray that lost its server ends the whole process."""

CONFIGS = [Config({"BLOCK": block}, num_warps=w) for block in (256, 512, 1024) for w in (1, 4)]


@pytest.fixture(scope="module")
def dask_cluster() -> Iterator[str]:
    """A cluster of two worker processes on this machine."""
    distributed = pytest.importorskip("distributed", reason="no dask: pip install '.[clusters]'")
    with (
        distributed.LocalCluster(
            n_workers=2, threads_per_worker=1, dashboard_address=None
        ) as cluster,
        distributed.Client(cluster),
    ):
        yield "dask"


@pytest.fixture(scope="module")
def ray_cluster() -> Iterator[str]:
    """A cluster of two CPUs on this machine."""
    ray = pytest.importorskip("ray", reason="no ray: pip install '.[clusters]'")
    if ALONE not in os.environ:
        pytest.skip("runs in a process of its own, by test_the_other_cluster")
    from ray.util.joblib import register_ray

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAY_USAGE_STATS_ENABLED", "0")
        ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False)
        register_ray()
        yield "ray"
        ray.shutdown()


@pytest.fixture(scope="module", params=["dask", "ray"])
def backend(request: pytest.FixtureRequest) -> str:
    """Joblib's name of a cluster that runs."""
    name: str = request.getfixturevalue(f"{request.param}_cluster")
    return name


@pytest.fixture(scope="module")
def workers(backend: str) -> Iterator[Workers]:
    """The cluster's; Ray starts a pool for each call, which takes it ten seconds: one is kept."""
    with joblib.parallel_config(backend=backend):
        found = Workers(1)
    if found._gives_generators:
        yield found
        return
    with found._parallel("list") as pool, pytest.MonkeyPatch.context() as patch:
        patch.setattr(found, "_parallel", lambda _return_as: nullcontext(pool))
        yield found


@pytest.mark.slow(seconds=46)
def test_the_other_cluster() -> None:
    """All that holds with Dask holds with Ray, whose driver may end its process, in one apart."""
    pytest.importorskip("ray", reason="no ray: pip install '.[clusters]'")
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:cacheprovider",
        __file__,
        "-k",
        "ray",
    ]
    environment = {**os.environ, ALONE: "1"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-3000:]
    assert "skipped" not in done.stdout


def test_a_cluster_compiles(
    backend: str, workers: Workers, target: Target, empty_settings: Settings
) -> None:
    """Two workers of the cluster share the compiles; artifacts lie in this process's folder."""
    lowering = Lowering(scale_problem(), target, 30)
    # Ray starts processes anew for each set of workers, which takes it ten seconds.
    kept = workers if backend == "ray" else None
    with joblib.parallel_config(backend=backend):
        found = compile_configs(lowering, CONFIGS, Hooks(where, admit), empty_settings, kept)
        made = dict(found)
    assert sorted(made) == list(range(len(CONFIGS)))
    outcomes = [made[position] for position in range(len(CONFIGS))]
    assert all(isinstance(outcome, CompiledConfig) for outcome in outcomes), outcomes
    processes = {outcome.reading[1] for outcome in outcomes}  # type: ignore[union-attr]
    assert len(processes) == 2
    assert os.getpid() not in processes
    cache = ArtifactCache(empty_settings.artifacts_dir, 1 << 30)
    assert all(isinstance(cache.get(o.digest), Artifact) for o in outcomes)  # type: ignore[union-attr]


def test_a_cluster_agrees(
    workers: Workers, target: Target, settings: Settings, empty_settings: Settings
) -> None:
    """Verdicts before compiling and after are those of this machine's own workers."""
    problem = row_sum_problem()
    own = Front(problem, target, settings, ProgressListener(), {}, Workers(settings.jobs))
    far = Front(problem, target, empty_settings, ProgressListener(), {}, workers)
    # The search asks in a thread of its own.
    with ThreadPoolExecutor(1) as threads:
        for moment in ("sketch", "assembly"):
            verdicts = threads.submit(far.verdicts, CONFIGS, moment, {}).result(120)
            expected = own.verdicts(CONFIGS, moment, {})
            assert [v.kept for v in verdicts] == [True] * len(CONFIGS)
            assert verdicts == expected


def test_workers_of_another_folder(
    workers: Workers, target: Target, tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A folder that the cluster does not see is filled all the same, and used the next time."""
    monkeypatch.chdir(tmp_path)
    settings = replace(Settings.from_environment({}), cache_dir=tmp_path.relative_to(tmp_path))
    lowering = Lowering(scale_problem(), target, 30)
    known: dict[str, Any] = {}
    hooks = Hooks(digest_of, admit, known)
    made = dict(compile_configs(lowering, CONFIGS, hooks, settings, workers))
    assert all(isinstance(outcome, CompiledConfig) for outcome in made.values())
    entries = {path.name for path in (tmp_path / "artifacts").glob("*/*")}
    assert entries == {f"{digest}.json.gz" for digest in known}
    # What lies here is sent along, so that a compiler that would fail is not asked.
    limits = replace(settings, compile_timeout_s=1e-4)
    again = dict(compile_configs(lowering, CONFIGS, Hooks(digest_of, admit), limits, workers))
    assert again == made


def test_errors_come_home(workers: Workers, target: Target, empty_settings: Settings) -> None:
    """A config that does not fit the kernel fails as without a cluster, which then goes on."""
    lowering, hooks = Lowering(scale_problem(), target, 30), Hooks(digest_of, admit)
    configs = [*CONFIGS[:1], Config({"TILE": 3})]
    outcomes = dict(compile_configs(lowering, configs, hooks, empty_settings, workers))
    assert isinstance(outcomes[0], CompiledConfig)
    assert isinstance(failed := outcomes[1], Failure)
    assert "TILE" in failed.detail
    rest = dict(sketch_configs(lowering, CONFIGS, hooks, empty_settings, workers))
    assert all(isinstance(outcome, CompiledConfig) for outcome in rest.values())


def test_given_up(workers: Workers, target: Target, empty_settings: Settings) -> None:
    """Compiles that nobody collects any more do not keep the cluster from the next ones."""
    lowering = Lowering(scale_problem(), target, 30)
    found = compile_configs(lowering, CONFIGS, Hooks(digest_of, admit), empty_settings, workers)
    next(found)
    found.close()
    again = compile_configs(lowering, CONFIGS, Hooks(digest_of, admit), empty_settings, workers)
    assert sorted(position for position, _ in again) == list(range(len(CONFIGS)))
