"""What the stages hand to each other and to the user: plain frozen records.

In a notebook `Features`, `PruneReport` and `TuneRecord` show themselves (`display`), and
`to_pandas()` gives their rows (`rows`, `frames`).
"""
