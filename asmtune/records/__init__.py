"""What the stages hand to each other and to the user: plain frozen records.

In a notebook `Features`, `PruneReport` and `TuneRecord` show themselves (`display`), and
`to_pandas()` gives their rows (`rows`, `frames`).
"""

from __future__ import annotations

from asmtune.records.artifacts import Artifact, Failure, Sketch
from asmtune.records.features import Features
from asmtune.records.pruned import PruneReport, Selection
from asmtune.records.timings import Measurement, Outcome
from asmtune.records.tuned import Provenance, TuneKey, TuneRecord
from asmtune.records.values import to_json
from asmtune.records.verdicts import Reason, Verdict

__all__ = [
    "Artifact",
    "Failure",
    "Features",
    "Measurement",
    "Outcome",
    "Provenance",
    "PruneReport",
    "Reason",
    "Selection",
    "Sketch",
    "TuneKey",
    "TuneRecord",
    "Verdict",
    "to_json",
]
