"""Tuning: the funnel, the search and the clock, then a record."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from asmtune.lazy import loader

if TYPE_CHECKING:
    from asmtune.tuning.api import gpu_of as gpu_of
    from asmtune.tuning.api import tune as tune
    from asmtune.tuning.identity import expected_of as expected_of
    from asmtune.tuning.identity import key_of as key_of
    from asmtune.tuning.identity import provenance as provenance
    from asmtune.tuning.identity import space_digest as space_digest
    from asmtune.tuning.objective import Objective as Objective
    from asmtune.tuning.options import Choices as Choices
    from asmtune.tuning.options import TuneJob as TuneJob
    from asmtune.tuning.options import TuneOptions as TuneOptions
    from asmtune.tuning.options import TuneResult as TuneResult
    from asmtune.tuning.predicting import predict as predict
    from asmtune.tuning.predicting import predict_small as predict_small
    from asmtune.tuning.presets import EFFORTS as EFFORTS
    from asmtune.tuning.presets import Effort as Effort
    from asmtune.tuning.presets import effort_of as effort_of
    from asmtune.tuning.session import Session as Session
    from asmtune.tuning.workshop import Workshop as Workshop

__all__ = [
    "EFFORTS",
    "Choices",
    "Effort",
    "Objective",
    "Session",
    "TuneJob",
    "TuneOptions",
    "TuneResult",
    "Workshop",
    "effort_of",
    "expected_of",
    "gpu_of",
    "key_of",
    "predict",
    "predict_small",
    "provenance",
    "space_digest",
    "tune",
]

_HOMES: Final = {
    "Choices": "options",
    "EFFORTS": "presets",
    "Effort": "presets",
    "Objective": "objective",
    "Session": "session",
    "TuneJob": "options",
    "TuneOptions": "options",
    "TuneResult": "options",
    "Workshop": "workshop",
    "effort_of": "presets",
    "expected_of": "identity",
    "gpu_of": "api",
    "key_of": "identity",
    "predict": "predicting",
    "predict_small": "predicting",
    "provenance": "identity",
    "space_digest": "identity",
    "tune": "api",
}

__getattr__ = loader(__name__, _HOMES)
