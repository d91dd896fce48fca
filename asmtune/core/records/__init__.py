"""Frozen records that the stages pass to each other and to the user.

A compile gives an `Artifact`, a `Sketch` or a `Failure` (`artifacts`). `Features` are the numbers
read off an artifact; the funnel gives a `Verdict` per config and a `PruneReport` per problem
(`verdicts`). Timing gives a `Measurement` per config, and tuning a `TuneRecord` per key (`tuned`).
"""
