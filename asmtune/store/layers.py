"""Lookups through both layers: the user's store first, then what is shipped."""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

from asmtune.base.errors import StoreError
from asmtune.core.records.tuned import Provenance, TuneKey
from asmtune.store.lookup import Lookup
from asmtune.store.shipped import shipped_lookup


class UserLayer(Protocol):
    """What is asked of the user's layer: a `Store`, or a `Shelf`."""

    def lookup(self, key: TuneKey, expected: Provenance) -> Lookup:
        """As `Store.lookup`."""
        ...


def find_tuned(key: TuneKey, expected: Provenance, store: UserLayer | None) -> Lookup:
    """The best that any layer knows of a key.

    A hit of the user's store goes before a shipped one: it was measured on the
    user's machine. Without any hit, the user's layer says why, unless it knows
    nothing of the key.

    Args:
        key: what is about to be launched.
        expected: how it would be tuned now.
        store: the user's; None asks the shipped layer alone.

    Raises:
        StoreError: the store cannot be read.
        InputError: a shipped file is malformed.
    """
    own = Lookup("miss") if store is None else store.lookup(key, expected)
    if own.outcome == "hit":
        return own
    shipped = shipped_lookup(key, expected)
    return shipped if shipped.outcome == "hit" or own.outcome == "miss" else own


def store_exists(path: Path) -> bool:
    """Whether a store's file is there; asking makes none and loads no database code.

    Raises:
        StoreError: its folder cannot be looked into.
    """
    try:
        path.stat()
    except FileNotFoundError:
        return False
    except OSError as error:
        raise StoreError(
            f"store {path}: {error.strerror or error}; make its folder accessible, "
            "or set ASMTUNE_STORE_URL to another place"
        ) from error
    return True
