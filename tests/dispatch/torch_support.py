"""What tests of PyTorch's compiler share: an imagined GPU, and what Dynamo wants to see of one."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import torch
import triton
from triton.backends.compiler import GPUTarget
from triton.runtime import driver

from asmtune.core.config import Config
from asmtune.core.hardware.shipped import load_target
from asmtune.core.records.tuned import Measurement, TuneKey, TuneRecord
from asmtune.runtime import autotuner
from asmtune.triton_api.launching import CurrentStream
from asmtune.tuning import tuner
from asmtune.tuning.request import TuningRequest, TuningResult
from asmtune.tuning.session import Session
from tests.dispatch import torch_kernels

DEVICE = "NVIDIA Imagined"


@dataclass
class Imagined:
    """A machine whose kernels PyTorch does on the host.

    Attributes:
        winner: of every tuning.
        others: that were timed as well, each slower than the one before.
        tuned: keys that were tuned.
        launches: their numbers, and their grid.
    """

    winner: Config = field(default_factory=lambda: Config({"BLOCK": 128}, num_warps=8))
    others: list[Config] = field(default_factory=list)
    tuned: list[TuneKey] = field(default_factory=list)
    launches: list[dict[str, Any]] = field(default_factory=list)

    def installed(self, folder: Path, patch: pytest.MonkeyPatch) -> Imagined:
        """Itself, in the place of the machine there is; its cache lies in a folder."""
        patch.setenv("ASMTUNE_CACHE_DIR", str(folder))
        for kernel in (torch_kernels.add, torch_kernels.add_even):
            patch.setattr(kernel, "run", self.run)
        # A PyTorch with CUDA has a current device, and fails to give it where there is no GPU.
        patch.setattr(autotuner, "current_stream", lambda: CurrentStream(lambda: -1, lambda _: 0))
        patch.setattr("asmtune.measure.timing.nvml.device_name", lambda: DEVICE)
        patch.setattr(tuner, "match_device", lambda _: load_target("H200"))
        patch.setattr(Session, "run", lambda _, request: self.tune(request))
        patch.setattr("torch.utils._triton.has_triton", lambda: True)
        patch.setattr(driver, "_active", ImaginedDriver())
        return self

    def tune(self, request: TuningRequest) -> TuningResult:
        """Stand for the funnel and the clock."""
        self.tuned.append(request.key)
        timed = [
            Measurement(config, 2.0 + i, 2.0 + i, 2.0 + i, (2.0 + i,))
            for i, config in enumerate([self.winner, *self.others])
        ]
        record = TuneRecord(request.key, self.winner, tuple(timed), request.expected)
        return TuningResult(request, "tuned", record)

    def run(self, *args: Any, **keywords: Any) -> None:
        """Stand for a launch: do the work, and check that the grid covers it."""
        names = torch_kernels.add_even.arg_names
        given = {**dict(zip(names, args, strict=False)), **keywords}
        self.launches.append({k: v for k, v in given.items() if not isinstance(v, torch.Tensor)})
        grid = given["grid"](given) if callable(given["grid"]) else given["grid"]
        assert grid[0] == triton.cdiv(given["n"], given["BLOCK"])
        given["out_ptr"].copy_(given["x_ptr"] + given["y_ptr"])


class ImaginedDriver:
    """Answers what Triton's front end asks a driver, without a GPU."""

    def get_current_target(self) -> GPUTarget:
        """A Hopper."""
        return GPUTarget("cuda", 90, 32)

    def get_current_device(self) -> int:
        """The first."""
        return 0

    def get_current_stream(self, _: int) -> int:
        """The default one."""
        return 0
