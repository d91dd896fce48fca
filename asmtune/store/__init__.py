"""The store: tuned configs by kernel, shape, dtypes and device, with every timing.

Two layers, asked in this order:

    the user's   an SQLite file, or another database by URL    (database)
    shipped      reviewed JSON files that come with asmtune    (shipped, interchange)

Launches and tuning use the user's through a `Shelf`, which never raises (shelf):
it also keeps timings of runs that have not ended (trials), and lets one process
tune a key while others wait (flights).

Nothing loaded from either can execute: both hold JSON. What needs SQLAlchemy
comes on first use; the shipped layer needs none of it.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any, Final

from asmtune.store.codec import key_digest
from asmtune.store.layers import find_tuned, store_exists
from asmtune.store.lookup import Finding, Lookup, Remembered, StoreWarning, Unfinished
from asmtune.store.shipped import shipped_lookup, shipped_records

if TYPE_CHECKING:
    from asmtune.store.database import Store as Store
    from asmtune.store.flights import Flight as Flight
    from asmtune.store.flights import Pace as Pace
    from asmtune.store.shelf import Shelf as Shelf
    from asmtune.store.shelf import open_user_store as open_user_store

__all__ = [
    "Finding",
    "Flight",
    "Lookup",
    "Pace",
    "Remembered",
    "Shelf",
    "Store",
    "StoreWarning",
    "Unfinished",
    "find_tuned",
    "key_digest",
    "open_user_store",
    "shipped_lookup",
    "shipped_records",
    "store_exists",
]

_HOMES: Final = {
    "Flight": "flights",
    "Pace": "flights",
    "Shelf": "shelf",
    "Store": "database",
    "open_user_store": "shelf",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)
    globals()[name] = value
    return value
