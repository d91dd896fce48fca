"""Traces of tuning runs as recorded timings, to be replayed like any other."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from asmtune.base.errors import OracleError, ProblemError
from asmtune.core.config import Config
from asmtune.core.failures import guarded
from asmtune.core.kernel_module import KernelModule, kernel_file, load_kernel_module
from asmtune.core.oracle import Oracle, Row, Task
from asmtune.core.records.artifacts import Failure
from asmtune.store.trace.run import CompiledRow, TracedRun

NOTE = (
    "a tuning run times what its search chose: the best speed is the best of these, and a scorer "
    "that helped to choose ranks none but its own favourites"
)
"""Caveat of a replayed run."""


@dataclass(frozen=True)
class Recording:
    """Recorded timings, and the folder of their kernels' modules."""

    oracle: Oracle
    kernels: Path


def recordings(runs: Sequence[TracedRun], kernels: Path | None = None) -> list[Recording]:
    """Convert runs on one device to files of timings: one a folder of kernels, a task a run.

    The modules lie in the folder `kernels`, or else where each run found its own.

    Raises:
        OracleError: the runs are of several devices, nothing was timed, or the kernel is gone or
            has changed; names the run.
        ProblemError: the kernel's module cannot be loaded.
    """
    devices = list(dict.fromkeys(run.header.key.device for run in runs))
    if len(devices) > 1:
        raise OracleError(f"the runs are of several devices ({', '.join(devices)}): one at a time")
    oracles: dict[Path, Oracle] = {}
    for run in runs:
        file = _file(run, kernels)
        task = _task(run, load_kernel_module(str(file)))
        known = oracles.get(file.parent, Oracle(devices[0], (), run.header.versions))
        oracles[file.parent] = replace(known, tasks=(*known.tasks, task))
    return [Recording(oracle, folder) for folder, oracle in oracles.items()]


def _file(run: TracedRun, kernels: Path | None) -> Path:
    reference = run.header.reference
    if kernels is None and reference is None:
        raise OracleError(
            f"run {run.run}: its kernel {run.header.kernel} was no kernel module; "
            "give the folder of one by --kernels"
        )
    # A shipped kernel's name has no suffix, a path has.
    name = Path(reference).stem if reference else run.header.kernel.rpartition(".")[2]
    try:
        return kernel_file(str(kernels / f"{name}.py") if kernels else str(reference))
    except ProblemError as error:
        raise OracleError(
            f"run {run.run}: its kernel is gone: {error}; give the folder of {name}.py by --kernels"
        ) from error


def _task(run: TracedRun, module: KernelModule) -> Task:
    timings, compiled = run.timings(), run.compiled()
    if not timings:
        raise OracleError(f"run {run.run}: no config was timed")
    rows = [
        Row(config, timing.median_us / 1000, None, _resources(compiled.get(config)))
        for config, timing in timings.items()
        if config.alternative is None
    ]
    rows += [Row(config, None, why, {}) for config, why in _failures(run, compiled).items()]
    try:
        shape = module.check_shape(run.header.shape)
    except ProblemError as error:
        raise OracleError(f"run {run.run}: {error}") from error
    return Task(module.name, shape, _dtype(run, module), tuple(rows))


def _failures(run: TracedRun, compiled: Mapping[Config, CompiledRow]) -> dict[Config, str]:
    """List why configs did not run; what a rule dropped was never tried."""
    refused = {c: row.reason or "" for c, row in compiled.items() if row.dropped_at == "compile"}
    failed = ((c, failure) for c, failure in run.failures().items() if c.alternative is None)
    return refused | {config: str(failure) for config, failure in failed}


def _dtype(run: TracedRun, module: KernelModule) -> str:
    key, shape = run.header.key, run.header.shape
    for dtype in module.dtypes:
        problem = guarded("input", lambda dtype=dtype: module.problem(shape, dtype, "meta"))  # type: ignore[misc]
        if not isinstance(problem, Failure) and problem.dtypes == dict(key.dtypes):
            return dtype
    dtypes = ", ".join(f"{name} {dtype}" for name, dtype in key.dtypes.items())
    raise OracleError(
        f"run {run.run}: no dtype of kernel {module.name} ({', '.join(module.dtypes)}) gives the "
        f"run's arguments ({dtypes}): the kernel has changed"
    )


def _resources(row: CompiledRow | None) -> dict[str, int]:
    if row is None:
        return {}
    resources = {"regs": row.regs, "spills": row.spills, "shared": row.shared}
    return {name: value for name, value in resources.items() if value is not None}
