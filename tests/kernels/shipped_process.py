"""A process of its own: launches a kernel on an imagined H200 whose asmtune ships a folder.

    python -m tests.kernels.shipped_process FOLDER KERNEL

Prints the config of each launch, and which modules were loaded, as JSON. There is no GPU, so
that Triton's own launch is taken out; whoever wants to tune or predict fails for want of one.
"""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path
from typing import Any

import torch

from asmtune.measure.timing import nvml
from asmtune.runtime.decorator import autotuners
from benchmarks.kernels.identities import DEVICE
from benchmarks.kernels.plan import Plan
from tests.kernels.accuracy import module_of


def ship(folder: Path) -> None:
    """Stand a package `asmtune.shipped` up that holds the folder's files."""
    init = folder / "__init__.py"
    init.write_text("")
    spec = importlib.util.spec_from_file_location(
        "asmtune.shipped", init, submodule_search_locations=[str(folder)]
    )
    assert spec is not None
    sys.modules["asmtune.shipped"] = importlib.util.module_from_spec(spec)


def launched(name: str) -> list[dict[str, Any]]:
    """Launch the public function at its first row; return what it launched."""
    module, launches = module_of(name), []
    for tuner in autotuners(module):
        tuner._function.run = lambda *_, **keywords: launches.append(keywords)
    place = Plan().places([name])[0]
    with torch.no_grad():
        getattr(module, name)(**module.inputs(place.shape, place.dtype, "cpu"))
    return launches


def main() -> None:
    """Launch, and print."""
    ship(Path(sys.argv[1]))
    nvml.device_name = lambda *_: DEVICE
    launches = launched(sys.argv[2])
    plain = [
        {name: value for name, value in launch.items() if isinstance(value, int)}
        for launch in launches
    ]
    sys.stdout.write(json.dumps({"launches": plain, "loaded": sorted(sys.modules)}))


if __name__ == "__main__":
    main()
