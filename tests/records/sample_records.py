"""Records of made-up timings, with awkward names."""

from __future__ import annotations

from asmtune.core.config import Config
from asmtune.core.records.artifacts import Failure
from asmtune.core.records.tuned import Measurement, Provenance, TuneKey, TuneRecord

AWKWARD = '<b>&"it\'s"</b>\x00\ud800'


def record_of(count: int, name: str = "package.kernel") -> TuneRecord:
    """A record of `count` timings, the slowest of which won, and of two failures."""
    configs = [Config({"BLOCK": 2**place, "MODE": name}) for place in range(count)]
    timings = tuple(
        Measurement(config, 1000.0 - place, 900.0 - place, 1100.0 - place, (1.0, 2.0))
        for place, config in enumerate(configs)
    )
    failures = tuple(
        (Config({"BLOCK": 3 + place, "MODE": name}), Failure("ptxas", "registers", name))
        for place in range(2)
    )
    key = TuneKey(name, {"n": 4096, "word": name}, {"x_ptr": "fp16"}, "NVIDIA H200")
    made = Provenance("s" * 64, "t" * 64, "3.6.0", "2.13.0", "0.1.0", "570.1", "2025-03-04")
    return TuneRecord(key, configs[0], timings, made, failures)
