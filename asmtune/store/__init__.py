"""The store: tuned configs by kernel, shape, dtypes and device, with every timing.

A lookup asks two layers, in this order:

    the user's   an SQLite file, or a PostgreSQL database by URL    (database)
    shipped      reviewed JSON files that come with asmtune         (interchange)

A new process first reads one row without SQLAlchemy (lookup). Launches and tuning use the user's
store as a `SafeStore`, which warns and never raises (safe_store); one process tunes a key while
others wait (lease). `Store` also holds predictions that nobody has timed. All of these are records,
in rows of one form that carry a seal (tables, codec), read in batches and parsed when the
transaction is over. A transaction is on a server, or on a file that is known to be ours and is
never held open over a fork (transactions, sqlite_file), and says what is wrong in one line
(places). `neighbours` finds and sorts the records that may serve another key, of another shape or
device. `lookup` holds the answers and the rules of validity, `trace` the events of one tuning run.

Nothing loaded from either layer can execute: both hold JSON.
SQLAlchemy is loaded on first use of `database`; the shipped layer, `fast_lookup` and `trace` need
none of it.
"""
