"""The agent of a remote host, whose GPUs are stood for by its CPU.

Takes the place of a Python: its last argument is the agent's. `STAND_IN` in the environment changes
what the host says of itself, as JSON; its entry "child" is the program that times.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

from asmtune.base.child import die_with_parent, module_command, own_stdout
from asmtune.base.fingerprint import versions
from asmtune.measure.bench.remote_main import Agent

WISH = json.loads(os.environ.get("STAND_IN", "{}"))
ATTRIBUTES = {"sms": 132, "major": 9, "minor": 0, "clock_khz": 1_980_000}
CHILD = str(Path(__file__).with_name("cpu_child.py"))


def probe() -> dict[str, object]:
    """Describe a host with two H200s."""
    gpus = WISH.get("gpus", ["NVIDIA H200", "NVIDIA H200"])
    time.sleep(WISH.get("probe_s", 0))
    return {
        **versions(),
        "python": sys.version.split()[0],
        "driver": "1.2.3",
        "compiler": "far",
        "cpus": 2,
        "gpus": [
            {"name": name, "attributes": ATTRIBUTES, "uuid": WISH.get("uuid", "")} for name in gpus
        ],
        **WISH.get("about", {}),
    }


if __name__ == "__main__":
    die_with_parent()
    commands = {
        "time": [sys.executable, *WISH.get("child", [CHILD])],
        "compile": module_command("asmtune.compile.child_main"),
    }
    Agent(own_stdout(), commands, probe).serve(float(sys.argv[-1]))
    os._exit(0)
