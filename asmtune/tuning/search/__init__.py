"""Search: decides what to compile next, what to time, and when to stop.

It knows neither compiler nor GPU: both are handed to `loop.run`.
"""
