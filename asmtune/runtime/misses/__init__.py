"""Resolving a launch whose key is not in memory.

    stored -> shipped -> predicted -> small? -> tune, predict, tune in the background, or raise

`resolver` takes a `TuningRequest` and returns a `Choice`: it looks into the stores (`lookups`,
which load neither funnel nor scorer), predicts, or hands the request to a `Tuner`.
`background` tunes in a thread, on copies of the arguments, while the program continues.
"""
