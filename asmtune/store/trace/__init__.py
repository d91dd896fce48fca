"""Traces: what a tuning run did, as lines of JSON that survive a kill."""
