"""Search: decides what to compile next, what to time, and when to stop.

It knows neither compiler nor GPU: both are handed to `loop.run`. `state` holds what is known,
a strategy (`model`) proposes batches and selects what to time, `Model` by the expected gain
of a Gaussian process (`surrogate`) over predictions, features and axes, or one without a model.
"""
