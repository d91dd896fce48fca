"""Timing compiled configs of one problem, each checked first.

    LocalBench    in this process, on its current GPU
    ChildBench    in a process of its own, which a config may hang, break or kill
    Team          a `ChildBench` on each of several GPUs

All of them give a config that cannot run, or that computes something else than
the default, a failure. `open_bench` chooses among them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from asmtune.lazy import loader

if TYPE_CHECKING:
    from asmtune.bench.base import Bench as Bench
    from asmtune.bench.base import BenchSetup as BenchSetup
    from asmtune.bench.base import Entrant as Entrant
    from asmtune.bench.base import Outcome as Outcome
    from asmtune.bench.distinct import Distinct as Distinct
    from asmtune.bench.distinct import binary_digest as binary_digest
    from asmtune.bench.given import DoBench as DoBench
    from asmtune.bench.hooks import PostHook as PostHook
    from asmtune.bench.hooks import PreHook as PreHook
    from asmtune.bench.hooks import TunerHooks as TunerHooks
    from asmtune.bench.local import LocalBench as LocalBench
    from asmtune.bench.machine import DeviceLostError as DeviceLostError
    from asmtune.bench.opening import open_bench as open_bench
    from asmtune.bench.remote import ChildBench as ChildBench
    from asmtune.bench.team import Team as Team

__all__ = [
    "Bench",
    "BenchSetup",
    "ChildBench",
    "DeviceLostError",
    "Distinct",
    "DoBench",
    "Entrant",
    "LocalBench",
    "Outcome",
    "PostHook",
    "PreHook",
    "Team",
    "TunerHooks",
    "binary_digest",
    "open_bench",
]

_HOMES: Final = {
    "Bench": "base",
    "BenchSetup": "base",
    "ChildBench": "remote",
    "DeviceLostError": "machine",
    "Distinct": "distinct",
    "DoBench": "given",
    "Entrant": "base",
    "LocalBench": "local",
    "Outcome": "base",
    "PostHook": "hooks",
    "PreHook": "hooks",
    "Team": "team",
    "TunerHooks": "hooks",
    "binary_digest": "distinct",
    "open_bench": "opening",
}

__getattr__ = loader(__name__, _HOMES)
