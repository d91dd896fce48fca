"""The read-only layer: tuned configs that come with asmtune, as reviewed JSON.

A launch parses only the files that name its kernel. Parsing all 183 records of 16 kernels
(260 KB) took 72 ms, parsing the files of one kernel 2 ms, and seeing that no file names a
user's kernel 0.1 ms.
"""

from __future__ import annotations

import json
from functools import cache
from importlib import resources
from typing import TYPE_CHECKING

from asmtune.core.records.tuned import Provenance, TuneKey, TuneRecord
from asmtune.store import interchange
from asmtune.store.codec import key_digest
from asmtune.store.lookup import StoreLookup, judge, preferred

if TYPE_CHECKING:
    from asmtune.store.database import Store
    from asmtune.store.safe_store import SafeStore


def shipped_records() -> tuple[TuneRecord, ...]:
    """Return every record of every `*.json` in `asmtune.shipped`, in order of the files' names.

    Raises:
        InputError: a file is malformed; names file, record and field.
    """
    return tuple(record for name in _files() for record in _parsed(name))


def shipped_of(kernel: str, device: str | None = None) -> tuple[TuneRecord, ...]:
    """Return the records shipped for a kernel, by its full name, for a device or for all.

    Raises:
        InputError: a file that names them is malformed; names file, record and field.
    """
    named = [json.dumps(name).encode() for name in (kernel, device) if name is not None]
    files = [name for name, text in _files().items() if all(word in text for word in named)]
    records = (record for name in files for record in _parsed(name))
    return tuple(r for r in records if r.key.kernel == kernel and device in (None, r.key.device))


def shipped_lookup(key: TuneKey, expected: Provenance) -> StoreLookup:
    """Look up a key in the shipped records, judged as a record of the store is.

    Files may hold a key several times, for versions of Triton: the valid record is taken, or else
    the newest that differs in Triton alone.

    Raises:
        InputError: a shipped file is malformed.
    """
    miss = StoreLookup("miss", detail=f"nothing shipped for {key.kernel}", layer="shipped")
    digest = key_digest(key)  # 1, 1.0 and True are alike
    shipped = shipped_of(key.kernel, key.device)
    own = (r for r in shipped if r.key == key and key_digest(r.key) == digest)
    return preferred(judge(record, expected, "shipped") for record in own) or miss


@cache
def _files() -> dict[str, bytes]:
    try:
        folder = resources.files("asmtune.shipped")
    except ModuleNotFoundError:
        # A source tree on the path without an installation: only that gives `cache/` this name.
        return {}
    files = sorted(folder.iterdir(), key=lambda item: item.name)
    return {item.name: item.read_bytes() for item in files if item.name.endswith(".json")}


@cache
def _parsed(name: str) -> tuple[TuneRecord, ...]:
    return interchange.loads(_files()[name], f"asmtune.shipped/{name}")


def find_tuned(key: TuneKey, expected: Provenance, store: Store | SafeStore | None) -> StoreLookup:
    """Look up a key in the user's store, then in the shipped layer.

    A hit of the user's store wins over a shipped one: it was measured on the user's machine.
    Without a hit, the user's store gives the reason, unless it has no record of the key, or the
    shipped layer alone has one of another Triton.

    Args:
        key: key of the launch.
        expected: how it would be tuned now.
        store: the user's store; None asks the shipped layer alone.

    Raises:
        StoreError: the store cannot be read.
        InputError: a shipped file is malformed.
    """
    own = StoreLookup("miss") if store is None else store.lookup(key, expected)
    if own.outcome == "hit":
        return own
    shipped = shipped_lookup(key, expected)
    better = shipped.outcome == "hit" or (shipped.is_candidate and not own.is_candidate)
    return shipped if better or own.outcome == "miss" else own
