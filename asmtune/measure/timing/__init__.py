"""The clock, the race between configs and the statistics of their samples."""
