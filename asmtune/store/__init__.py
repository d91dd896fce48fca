"""The store: tuned configs by kernel, shape, dtypes and device, with every timing.

A lookup asks two layers, in this order:

    the user's   an SQLite file, or a PostgreSQL database by URL    (database)
    shipped      reviewed JSON files that come with asmtune         (shipped, interchange)

Data flows from a key to a record and back. A new process first reads one row without SQLAlchemy
(fast_lookup). Launches and tuning use the user's store as a `SafeStore`, which warns and never
raises (safe_store). It also holds the outcomes of runs that have not ended and the predictions
that nobody has timed, and lets one process tune a key while others wait (lease). `Store` runs each
call in a transaction (transactions) over rows that carry a seal (tables), in a file that is
known to be ours and is never held open over a fork (sqlite_file), and says what is wrong in one
line (places). Rows are read in batches (records), and parsed when the transaction is over.
`neighbours` finds and sorts the records that may serve another key, of another shape or device.
`lookup` holds the answers and the rules of validity, `codec` the JSON form of records, `trace` the
events of one tuning run.

Nothing loaded from either layer can execute: both hold JSON.
SQLAlchemy is loaded on first use of `database`; the shipped layer, `fast_lookup` and `trace` need
none of it.
"""
