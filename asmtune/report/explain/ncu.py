"""Hardware counters of one launch of a config, read by Nsight Compute (`ncu`) from its CSV.

`ncu` runs a small program that launches the config, as a child with a limit. Every failure is a
`CountersError` of one line. It has been tested against a stand-in that writes the CSV as Nsight
Compute documents it, and never on a GPU.
"""

from __future__ import annotations

import contextlib
import csv
import io
import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Final

from asmtune.base.errors import AsmtuneError
from asmtune.base.text import shortened
from asmtune.core.config import Config
from asmtune.core.inputs.plain_functions import plain_function
from asmtune.core.kernel_module import load_kernel_module
from asmtune.core.problem import Problem
from asmtune.triton_api.jit_functions import jit_function

LIMIT_S: Final = 180.0
"""Limit of the child: it compiles, and `ncu` replays a launch a few times."""

METRICS: Final[Mapping[str, str]] = {
    "time": "gpu__time_duration.sum",
    "tensor": "sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_elapsed",
    "issue": "sm__inst_issued.avg.pct_of_peak_sustained_elapsed",
    "shared": "l1tex__data_pipe_lsu_wavefronts_mem_shared.avg.pct_of_peak_sustained_elapsed",
    "L1": "l1tex__data_pipe_lsu_wavefronts.avg.pct_of_peak_sustained_elapsed",
    "special": "sm__inst_executed_pipe_xu.avg.pct_of_peak_sustained_elapsed",
    "L2": "lts__t_sectors.avg.pct_of_peak_sustained_elapsed",
    "DRAM": "dram__throughput.avg.pct_of_peak_sustained_elapsed",
    "dram_bytes": "dram__bytes.sum",
    "load_sectors": "l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum",
    "load_requests": "l1tex__t_requests_pipe_lsu_mem_global_op_ld.sum",
    "store_sectors": "l1tex__t_sectors_pipe_lsu_mem_global_op_st.sum",
    "store_requests": "l1tex__t_requests_pipe_lsu_mem_global_op_st.sum",
    "conflicts": "l1tex__data_bank_conflicts_pipe_lsu_mem_shared.sum",
    "registers": "launch__registers_per_thread",
    "occupancy": "sm__warps_active.avg.pct_of_peak_sustained_active",
    "l2_hits": "lts__t_sector_hit_rate.pct",
}
"""Counters by the name that comparisons give them."""

_PERMISSION: Final = "ERR_NVGPUCTRPERM"
_NO_GPU: Final = "asmtune: no CUDA GPU"
_PROGRAM: Final = "from asmtune.report.explain.ncu import launch_twice; launch_twice()"


class CountersError(AsmtuneError):
    """Counters cannot be read; its text is one line."""


@dataclass(frozen=True)
class CountedLaunch:
    """A launch that another process can make: the kernel as the command line names it.

    Attributes:
        kernel: a kernel module's name or file, or `file.py:function`.
        shape, dtype: of a kernel module.
        values, grid: of a plain function.
        config: the axes' values, as `Config.to_dict` gives them.
    """

    kernel: str
    shape: Mapping[str, Any]
    dtype: str | None
    values: tuple[str, ...]
    grid: str | None
    config: Mapping[str, Any]

    def problem(self) -> Problem:
        """Make the problem with tensors on the GPU."""
        if ":" in self.kernel:
            axes = {name: [value] for name, value in self.config.items()}
            problem, _ = plain_function(self.kernel, self.values, self.grid, axes)
            return problem
        module = load_kernel_module(self.kernel)
        return module.problem(dict(self.shape), module.check_dtype(self.dtype), "cuda")

    def own_config(self, problem: Problem) -> Config:
        """Return the config, with the kernel module's own values where JSON holds their text."""
        config = Config.from_dict(self.config)
        if ":" in self.kernel:
            return config
        return load_kernel_module(self.kernel).space().matching(config, **problem.shape) or config


def read_counters(launch: CountedLaunch, entry: str, limit_s: float = LIMIT_S) -> dict[str, float]:
    """Read the counters of a launch of a compiled kernel, by the names of `METRICS`.

    Counters that the device does not have are left out.

    Raises:
        CountersError: there is no `ncu` or no GPU, the driver forbids it, it takes longer than
            the limit, or it prints nothing of this kernel.
    """
    tool = shutil.which("ncu")
    if tool is None:
        raise CountersError("ncu is not on PATH: install Nsight Compute, or add its folder to PATH")
    command = [tool, "--csv", "--page", "raw", "--print-units", "base"]
    command += ["--metrics", ",".join(METRICS.values()), "--target-processes", "application-only"]
    command += ["--kernel-name-base", "function", "--kernel-name", entry]
    command += ["--launch-skip", "1", "--launch-count", "1", sys.executable, "-c", _PROGRAM]
    out, err, code = _run(command, json.dumps(asdict(launch)), limit_s)
    return _read(out, err, code, entry)


def _run(command: list[str], launch: str, limit_s: float) -> tuple[str, str, int]:
    """Run a command in a group of its own, and end the group at the limit."""
    environment = {**os.environ, "ASMTUNE_COUNTED_LAUNCH": launch}
    try:
        child = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=environment,
            text=True,
            errors="replace",
            start_new_session=True,
        )
    except OSError as error:
        raise CountersError(f"ncu does not start: {error.strerror or error}") from error
    try:
        out, err = child.communicate(timeout=limit_s)
    except subprocess.TimeoutExpired:
        raise CountersError(
            f"ncu took longer than {limit_s:g} s and was ended; give a smaller shape"
        ) from None
    finally:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(child.pid, signal.SIGKILL)
        child.wait()
    return out, err, child.returncode


def _read(out: str, err: str, code: int, entry: str) -> dict[str, float]:
    said = f"{out}\n{err}"
    if _PERMISSION in said:
        raise CountersError(
            f"the driver lets only administrators read counters ({_PERMISSION}): run as root, or "
            "see https://developer.nvidia.com/ERR_NVGPUCTRPERM"
        )
    if _NO_GPU in said:
        raise CountersError("there is no CUDA GPU: run it where the kernel runs")
    counters = parse_csv(out)
    if counters is not None:
        return counters
    lines = [line for line in said.splitlines() if line.strip() and not line.startswith('"')]
    # What the program raised comes last; ncu's own errors are marked.
    errors = [line for line in lines if line.startswith("==ERROR==")]
    last = shortened((errors or lines or ["it printed nothing"])[-1].strip(), 200)
    raise CountersError(f"ncu (exit code {code}) counted no launch of {entry}: {last}")


def parse_csv(text: str) -> dict[str, float] | None:
    """Read the last launch of `ncu --csv --page raw`, by the names of `METRICS`.

    Before the CSV stand ncu's own lines and what the program printed. A row of units follows the
    headings. Return None if there is no launch.
    """
    lines = [line for line in text.splitlines() if line.startswith('"')]
    rows = list(csv.reader(io.StringIO("\n".join(lines))))
    start = next((i for i, row in enumerate(rows) if "Kernel Name" in row), None)
    if start is None or len(rows) < start + 3:
        return None
    heading, units, values = rows[start], rows[start + 1], rows[-1]
    by_metric = {
        name: (value, unit) for name, unit, value in zip(heading, units, values, strict=False)
    }
    counters: dict[str, float] = {}
    for name, metric in METRICS.items():
        number = _number(*by_metric.get(metric, ("", "")))
        if number is not None:
            counters[name] = number
    return counters


_SCALES: Final = {
    "ns": 1.0,
    "nsecond": 1.0,
    "us": 1e3,
    "usecond": 1e3,
    "ms": 1e6,
    "msecond": 1e6,
    "s": 1e9,
    "second": 1e9,
    "byte": 1.0,
    "Kbyte": 1e3,
    "Mbyte": 1e6,
    "Gbyte": 1e9,
}
"""Factors to nanoseconds and bytes, where a version of ncu scales its units all the same."""


def _number(text: str, unit: str) -> float | None:
    try:
        return float(text.replace(",", "")) * _SCALES.get(unit, 1.0)
    except ValueError:
        return None  # "n/a": the device does not have it


def launch_twice() -> None:
    """Launch a config on this machine's GPU: once to compile it, and once to be counted."""
    import torch

    if not torch.cuda.is_available():
        raise SystemExit(_NO_GPU)
    launch = CountedLaunch(**json.loads(os.environ["ASMTUNE_COUNTED_LAUNCH"]))
    problem = launch.problem()
    config = launch.own_config(problem)
    values = {name: _on_gpu(value) for name, value in problem.bind(config).items()}
    for _ in range(2):
        jit_function(problem.kernel)[problem.programs(config)](**values)
    torch.cuda.synchronize()


def _on_gpu(value: Any) -> Any:
    """Return a tensor on the GPU in the place of one without memory: normal numbers, or zeros."""
    import torch

    if not isinstance(value, torch.Tensor) or value.device.type != "meta":
        return value
    made = torch.empty_strided(value.shape, value.stride(), dtype=value.dtype, device="cuda")
    if value.dtype.is_floating_point and value.dtype.itemsize > 1:
        return made.normal_()
    return made.zero_()
