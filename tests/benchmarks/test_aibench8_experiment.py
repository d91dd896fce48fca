"""The experiment: what each bar leaves out, and the arithmetic of the summary."""

from __future__ import annotations

from typing import Any

from benchmarks.aibench8.summary import BARS, speedups


def row(bar: str, p50: float, p20: float | None = None, p80: float | None = None) -> dict[str, Any]:
    """A timed row."""
    return {"bar": bar, "p20_us": p20 or p50, "p50_us": p50, "p80_us": p80 or p50}


KNOWN = [
    row("baseline", 12.0),
    row("baseline", 8.0, 7.0, 9.0),
    row("full", 2.0, 1.75, 2.5),
    row("dispatch_off", 4.0),
    row("contract_off", 16.0),
    *(row("asm_off", us) for us in (2.0, 8.0, 4.0)),
]


def test_speedups_of_a_known_race() -> None:
    """The faster baseline counts, draws by their median, and ranges by both sides' spread."""
    found = speedups(KNOWN)
    assert list(found) == list(BARS)
    assert found["full"] == {"speedup": 4.0, "least": 7.0 / 2.5, "most": round(9.0 / 1.75, 4)}
    assert found["dispatch_off"]["speedup"] == 2.0
    assert found["contract_off"]["speedup"] == 0.5
    assert found["asm_off"] == {"speedup": 2.0, "least": 1.0, "most": 4.0}
