"""Provenance of a result, and how results are written."""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from asmtune.base.fingerprint import versions

RESULTS = Path(__file__).parent / "results"


def provenance() -> dict[str, Any]:
    """Give versions, machine, date and command of this process."""
    return {
        # Files by their names: where they lay on the machine says nothing.
        "command": " ".join(["python -m", _module(), *(Path(a).name for a in sys.argv[1:])]),
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "commit": _commit(),
        "python": platform.python_version(),
        "cpus": len(os.sched_getaffinity(0)),
        **versions(),
        **_gpu(),
    }


def write(path: Path, results: Mapping[str, Any]) -> None:
    """Write results with their provenance as JSON, atomically."""
    part = path.with_suffix(".part")
    part.write_text(json.dumps({"provenance": provenance(), **results}, indent=1) + "\n")
    part.replace(path)


def _module() -> str:
    spec = getattr(sys.modules["__main__"], "__spec__", None)
    return spec.name if spec else Path(sys.argv[0]).stem


def _commit() -> str:
    if given := os.environ.get("BENCHMARK_COMMIT"):  # of a copy whose git history is another's
        return given
    command = ["git", "-C", str(Path(__file__).parent), "describe", "--always", "--dirty"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.stdout.strip() or "unknown"


def _gpu() -> dict[str, str]:
    import torch

    if not torch.cuda.is_available():
        return {"device": "none"}
    from asmtune.measure.timing.nvml import device_name, driver_version

    return {"device": device_name(), "driver": driver_version()}
