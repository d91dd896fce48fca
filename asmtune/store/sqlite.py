"""A connection to the store's SQLite file; loads no SQLAlchemy."""

from __future__ import annotations

import os
import sqlite3
from pathlib import Path
from typing import Final
from urllib.parse import quote

SCHEMA_VERSION: Final = 3
"""Of the store's tables; see `tables`."""


def connect(path: Path, patience_s: float) -> sqlite3.Connection:
    """A connection in autocommit to a file, which must exist; waits so long for another's lock."""
    # mode=rw: SQLite itself would make a missing file readable by others.
    uri = f"file:{quote(os.fsencode(path.absolute()))}?mode=rw"
    connection = sqlite3.connect(
        uri, timeout=patience_s, isolation_level=None, check_same_thread=False, uri=True
    )
    # Damaged text must reach the check of its row, not end the whole query.
    connection.text_factory = lambda data: data.decode("utf-8", "surrogateescape")
    for pragma in ("foreign_keys=ON", "trusted_schema=OFF", "cell_size_check=ON"):
        connection.execute(f"PRAGMA {pragma}")
    return connection
