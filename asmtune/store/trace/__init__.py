"""Traces: the events of one tuning run, as lines of JSON in a file that survives a kill.

A run writes lines (writer) into a folder of runs; `asmtune runs`, the reports and the replays
find it there and read the lines back (reader) as the records of `run`.
"""
