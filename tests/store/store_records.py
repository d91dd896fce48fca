"""Tune records for the store's tests: one by hand, any by hypothesis."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

from hypothesis import strategies as st

from asmtune.core.config import Config
from asmtune.core.records.artifacts import Failure
from asmtune.core.records.tuned import Measurement, Provenance, TuneKey, TuneRecord
from asmtune.store import interchange
from asmtune.store.sqlite_file import APPLICATION_ID

DAMAGED = b"not a database".ljust(68) + APPLICATION_ID.to_bytes(4, "big") + b"junk" * 500
"""The bytes of a store's file of which but our application id is left."""

PROVENANCE = Provenance(
    source="5" * 64,
    space="a" * 64,
    triton="3.6.0",
    torch="2.11.0",
    asmtune="0.1.0",
    driver="570.86.15",
    date="2025-03-01T12:00:00+00:00",
)


def execute(path: Path, statement: str, *values: object) -> None:
    """Change a store's file behind its back."""
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute(statement, values)


def text_of(records: Iterable[TuneRecord], *, samples: bool = False) -> str:
    """The text of a document, as `interchange.write` puts it into a file."""
    parts: list[bytes] = []
    interchange.write(
        Path("file"), records, samples=samples, put=lambda _, made: parts.extend(made)
    )
    return b"".join(parts).decode()


def timed(config: Config, median_us: float = 9.5) -> Measurement:
    """A measurement whose samples need all their digits."""
    return Measurement(config, median_us, median_us - 0.25, median_us + 0.5, (0.1 + 0.2, 9.75))


def record(m: int = 4096, *, kernel: str = "pkg.matmul", **changes: Any) -> TuneRecord:
    """A record of one shape with two configs timed and one failed."""
    winner = Config({"BLOCK_M": 128, "EVEN": True}, num_warps=8, maxnreg=168)
    other = Config({"BLOCK_M": 64, "EVEN": False}, num_ctas=2)
    made = TuneRecord(
        key=TuneKey(kernel, {"M": m, "causal": True}, {"a": "fp16"}, "NVIDIA H200"),
        winner=winner,
        measurements=(timed(winner), timed(other, 12.0)),
        provenance=PROVENANCE,
        failures=(
            (Config({"BLOCK_M": 512}), Failure("ptxas", "registers", "too many\nat line 3")),
        ),
    )
    return replace(made, **changes)


# Without NUL, which PostgreSQL cannot hold; a test of its own says what becomes of it.
_characters = st.characters(exclude_characters="\0", exclude_categories=("Cs",))
_names = st.text(_characters, min_size=1, max_size=8)
_texts = st.text(_characters, max_size=20)
_scalars = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(1 << 63), (1 << 64) - 1),
    st.floats(allow_nan=False, allow_infinity=False),
    _texts,
)
_counts = st.integers(1, (1 << 31) - 1)
_options = frozenset({"num_warps", "num_stages", "num_ctas", "maxnreg"})
_times = st.floats(0, exclude_min=True, allow_nan=False, allow_infinity=False)


@st.composite
def configs(draw: st.DrawFn) -> Config:
    """Any config that can be kept."""
    kwargs = draw(st.dictionaries(_names.filter(lambda name: name not in _options), _scalars))
    options = {name: draw(_counts) for name in ("num_warps", "num_stages", "num_ctas")}
    return Config.from_dict(kwargs | options | {"maxnreg": draw(st.none() | _counts)})


@st.composite
def records(draw: st.DrawFn) -> TuneRecord:
    """Any record that can be kept, its winner timed."""
    measured = draw(
        st.lists(
            st.builds(Measurement, configs(), _times, _times, _times, st.lists(_times).map(tuple)),
            min_size=1,
            max_size=4,
        )
    )
    failure = st.builds(Failure, _texts, _texts, _texts)
    return TuneRecord(
        key=TuneKey(
            draw(_texts),
            draw(st.dictionaries(_names, _scalars, max_size=4)),
            draw(st.dictionaries(_names, _texts, max_size=4)),
            draw(_texts),
        ),
        winner=draw(st.sampled_from(measured)).config,
        measurements=tuple(measured),
        provenance=Provenance(**{name: draw(_texts) for name in vars(PROVENANCE)}),
        failures=tuple(draw(st.lists(st.tuples(configs(), failure), max_size=2))),
    )
