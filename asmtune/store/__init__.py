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
