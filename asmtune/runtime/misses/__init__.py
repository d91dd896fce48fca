"""Resolves a launch whose key is not in memory to a config.

    stored -> shipped -> small? -> tune, predict, tune in the background, or raise

`resolver` decides, `answers` are what it is asked and what it answers; `lookups` is the way
without funnel or scorer, `neighbours` and `smallness` look for less than a tuned config,
`background` tunes `copies` of the arguments in a thread, and `workshops` tune.
"""
