"""What records need to show themselves in a notebook: HTML tables, and pandas where it is there.

Knows no record: rows of text or of values go in.
"""
