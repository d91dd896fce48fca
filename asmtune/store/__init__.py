"""The store: tuned configs by kernel, shape, dtypes and device, with every timing.

Two layers, asked in this order:

    the user's   an SQLite file, or another database by URL    (database)
    shipped      reviewed JSON files that come with asmtune    (shipped, interchange)

Launches and tuning use the user's through a `Shelf`, which never raises (shelf):
it also keeps timings of runs that have not ended (trials), and lets one process
tune a key while others wait (flights). What the model chose and nobody has timed
stands apart (predictions). A new process first looks at one row (glance).

Nothing loaded from either can execute: both hold JSON. What needs SQLAlchemy
comes on first use; the shipped layer needs none of it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from asmtune.lazy import loader
from asmtune.store.abridged import abridged
from asmtune.store.codec import key_digest
from asmtune.store.glance import Glimpse, Seen, glance
from asmtune.store.layers import find_tuned, store_exists
from asmtune.store.lookup import Finding, Lookup, Prediction, Remembered, StoreWarning, Unfinished
from asmtune.store.shipped import forget_shipped, shipped_lookup, shipped_of, shipped_records

if TYPE_CHECKING:
    from asmtune.store.database import Store as Store
    from asmtune.store.flights import Flight as Flight
    from asmtune.store.flights import Pace as Pace
    from asmtune.store.shelf import Shelf as Shelf
    from asmtune.store.shelf import open_user_store as open_user_store

__all__ = [
    "Finding",
    "Flight",
    "Glimpse",
    "Lookup",
    "Pace",
    "Prediction",
    "Remembered",
    "Seen",
    "Shelf",
    "Store",
    "StoreWarning",
    "Unfinished",
    "abridged",
    "find_tuned",
    "forget_shipped",
    "glance",
    "key_digest",
    "open_user_store",
    "shipped_lookup",
    "shipped_of",
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


__getattr__ = loader(__name__, _HOMES)
