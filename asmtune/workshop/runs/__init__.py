"""Tuning runs that have ended or go on, read from their traces.

report    a run as text and as JSON: its funnel, its timings, why it ended; and the list of runs
command   `asmtune runs`
"""
