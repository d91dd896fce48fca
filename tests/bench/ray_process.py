"""Tunes on a Ray cluster of two workers on this machine, in a process that Ray may end.

Arguments: a folder for the stores, and an address with the Python of its agents. Prints a line of
JSON: the winner, the median of each timing, and what is left of agents.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import ray

from asmtune.measure.bench.remote_gpus import close_hosts, remote_gpus
from tests.tuning.test_remote import far_tuner, no_agents, timings
from tests.tuning_support import resolved

if __name__ == "__main__":
    ray.init(num_cpus=2, num_gpus=2, include_dashboard=False, log_to_driver=False)
    address = sys.argv[2]
    result = resolved(far_tuner(Path(sys.argv[1]), (address,)))
    assert result.record is not None
    gpus = [str(gpu) for gpu in remote_gpus(address)]
    close_hosts()
    answer = {"winner": str(result.record.winner), "timed": timings(result), "gpus": gpus}
    print(json.dumps({**answer, "clean": no_agents(Path(sys.argv[1]).parent)}))  # noqa: T201
