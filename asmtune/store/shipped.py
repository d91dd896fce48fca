"""The read-only layer: tuned configs that come with asmtune, as reviewed JSON."""

from __future__ import annotations

from functools import cache
from importlib import resources

from asmtune.records import Provenance, TuneKey, TuneRecord
from asmtune.store import interchange
from asmtune.store.codec import key_digest
from asmtune.store.lookup import Lookup, judged


@cache
def shipped_records() -> tuple[TuneRecord, ...]:
    """Every record of every `*.json` in `asmtune.shipped`; read once.

    Raises:
        InputError: a file is malformed; names file, record and field.
    """
    try:
        folder = resources.files("asmtune.shipped")
    except ModuleNotFoundError:
        # A source tree on the path without an install: `cache/` gets this name
        # by installation only.
        return ()
    found = sorted(
        (item for item in folder.iterdir() if item.name.endswith(".json")),
        key=lambda item: item.name,
    )
    return tuple(
        record
        for item in found
        for record in interchange.loads(item.read_bytes(), f"asmtune.shipped/{item.name}")
    )


@cache
def _by_digest() -> dict[str, tuple[TuneRecord, ...]]:
    groups: dict[str, tuple[TuneRecord, ...]] = {}
    for record in shipped_records():
        identity = key_digest(record.key)
        groups[identity] = (*groups.get(identity, ()), record)
    return groups


def shipped_lookup(key: TuneKey, expected: Provenance) -> Lookup:
    """What is shipped for a key, judged as a record of the store is.

    Files may hold one key several times, tuned with different versions of
    Triton: the one that holds is taken.

    Raises:
        InputError: a shipped file is malformed.
    """
    answer = Lookup("miss", detail=f"nothing shipped for {key.kernel}", layer="shipped")
    for record in _by_digest().get(key_digest(key), ()):
        answer = judged(record, expected, "shipped")
        if answer.outcome == "hit":
            break
    return answer
