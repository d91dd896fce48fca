"""The clock, the race between configs and the statistics of their samples.

`race` decides which config is timed how often (`policy` says how), `clock` takes the samples on a
GPU, `statistics` makes a measurement of them and compares two. `nvml` reads clocks
and names.
"""
