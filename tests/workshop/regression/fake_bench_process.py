"""Stands for `asmtune.workshop.regression.process_main` without a GPU.

n = 13 ends the process, n = 14 fails, n = 15 hangs; others take n / 100 us.
"""

from __future__ import annotations

import json
import os
import random
import sys
import time


def say(**message: object) -> None:
    """Send a message."""
    sys.stdout.write(json.dumps(message) + "\n")
    sys.stdout.flush()


def main() -> None:
    """Answer one plan."""
    line = sys.stdin.readline()
    if not line:
        return
    plan = json.loads(line)
    if "FAKE_REFUSES" in os.environ:
        say(refused="no target describes the device")
        return
    say(environment={"gpu": "NVIDIA H200", "board": "b0", "driver": "580", "versions": {}})
    source = random.Random(plan["seed"])
    for number, row in plan["rows"].items():
        size = row["sizes"].get("n", 100)
        say(running=number)
        if size == 13:
            os.abort()
        if size == 15:
            time.sleep(60)
        if size == 14:
            say(row=number, failure="registers at ptxas: too\nmany")
        else:
            samples = [size / 100 * source.gauss(1, 0.01) for _ in range(5)]
            load = {"unit": "fp32", "flops": 2.0 * size, "bytes": 4.0 * size}
            say(row=number, samples=samples, load=load)
    say(clocks={"sm_mhz": 1980})


if __name__ == "__main__":
    main()
