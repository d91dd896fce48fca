"""Tuning: the funnel, the search and the clock, then a record."""
