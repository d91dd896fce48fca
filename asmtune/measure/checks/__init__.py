"""Checks of a config while it is tuned: what it writes, and whether it computes the same."""
