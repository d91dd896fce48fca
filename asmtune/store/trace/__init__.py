"""Traces: the events of one tuning run, as lines of JSON in a file that survives a kill.

A run writes lines (writer) into a folder of runs (folder); `asmtune runs`, the reports and the
replays read them back (reader) as the records of `run`.
"""
