"""Replay: the funnel over recorded timings, to know its regret without a GPU."""
