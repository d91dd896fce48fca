"""The store: tuned configs by kernel, shape, dtypes and device, with every timing.

Two layers, asked in this order:

    the user's   an SQLite file, or another database by URL    (database)
    shipped      reviewed JSON files that come with asmtune    (shipped, interchange)

Nothing loaded from either can execute: both hold JSON. `Store` loads SQLAlchemy
and so comes on first use; the shipped layer needs none of it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from asmtune.store.codec import key_digest
from asmtune.store.layers import find_tuned, store_exists
from asmtune.store.lookup import Finding, Lookup, StoreWarning
from asmtune.store.shipped import shipped_lookup, shipped_records

if TYPE_CHECKING:
    from asmtune.store.database import Store as Store

__all__ = [
    "Finding",
    "Lookup",
    "Store",
    "StoreWarning",
    "find_tuned",
    "key_digest",
    "shipped_lookup",
    "shipped_records",
    "store_exists",
]


def __getattr__(name: str) -> Any:
    if name != "Store":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from asmtune.store.database import Store

    globals()[name] = Store
    return Store
