"""asmtune: an assembly-aware autotuner for Triton kernels.

Public names load on first use, so that importing the package costs
milliseconds and pulls in neither torch, triton, numpy nor rich.
"""

from __future__ import annotations

import importlib

TYPE_CHECKING = False  # that of `typing`, whose import takes longer than all else here
if TYPE_CHECKING:
    from typing import Any

    from asmtune.core.config import Config as Config
    from asmtune.core.hardware.shipped import load_target as load_target
    from asmtune.core.keys.buckets import between as between
    from asmtune.core.keys.buckets import multiple as multiple
    from asmtune.core.keys.buckets import pow2 as pow2
    from asmtune.core.problem import Problem as Problem
    from asmtune.core.space.space import Space as Space
    from asmtune.measure.accuracy import Bound as Bound
    from asmtune.measure.accuracy import measure_accuracy as measure_accuracy
    from asmtune.runtime.call_trace import keep_alive as keep_alive
    from asmtune.runtime.decorator import asm_autotune as asm_autotune
    from asmtune.runtime.offline.prediction import predict as predict
    from asmtune.runtime.offline.pruning import prune_report as prune_report
    from asmtune.runtime.offline.pruning import pruner as pruner
    from asmtune.runtime.options import deterministic as deterministic
    from asmtune.runtime.patching.redirect import patch as patch
    from asmtune.runtime.replay_calls import replay_calls as replay_calls
    from asmtune.tuning.tuner import tune as tune
    from asmtune.workshop.regression.api import bench as bench
    from asmtune.workshop.regression.api import check as check
    from asmtune.workshop.roofline.api import roofline as roofline

_HOMES = {
    "Bound": "asmtune.measure.accuracy",
    "Config": "asmtune.core.config",
    "Problem": "asmtune.core.problem",
    "Space": "asmtune.core.space.space",
    "asm_autotune": "asmtune.runtime.decorator",
    "bench": "asmtune.workshop.regression.api",
    "between": "asmtune.core.keys.buckets",
    "check": "asmtune.workshop.regression.api",
    "deterministic": "asmtune.runtime.options",
    "load_target": "asmtune.core.hardware.shipped",
    "measure_accuracy": "asmtune.measure.accuracy",
    "multiple": "asmtune.core.keys.buckets",
    "patch": "asmtune.runtime.patching.redirect",
    "keep_alive": "asmtune.runtime.call_trace",
    "pow2": "asmtune.core.keys.buckets",
    "predict": "asmtune.predict",
    "replay_calls": "asmtune.runtime.replay_calls",
    "prune_report": "asmtune.runtime.offline.pruning",
    "pruner": "asmtune.runtime.offline.pruning",
    "roofline": "asmtune.workshop.roofline.api",
    "tune": "asmtune.tuning.tuner",
}

_FOLDERS = {
    "kernel_checks": "asmtune.workshop.kernel_checks",
    "kernels": "asmtune.kernels",
    "lowprec": "asmtune.workshop.lowprec",
    "rules": "asmtune.core.size_rules",
}

__all__ = [
    "Bound",
    "Config",
    "Problem",
    "Space",
    "asm_autotune",
    "bench",
    "between",
    "check",
    "deterministic",
    "keep_alive",
    "load_target",
    "measure_accuracy",
    "multiple",
    "patch",
    "pow2",
    "predict",
    "prune_report",
    "pruner",
    "replay_calls",
    "roofline",
    "tune",
]


def __getattr__(name: str) -> Any:
    value: Any
    if name in _HOMES:
        value = getattr(importlib.import_module(_HOMES[name]), name)
    elif name in _FOLDERS:
        value = importlib.import_module(_FOLDERS[name])
    elif name == "__version__":
        value = importlib.import_module("asmtune.base.fingerprint").version_of("asmtune")
    else:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted([*__all__, *_FOLDERS])
