"""The funnel: from a space to the configs worth timing, and why.

- `flow`: `Funnel`, all stages in order.
- `tiles`: which tile axes are held: those of a recurrence's state, unless asked for.
- `arithmetic`: the first stage of a large space: which configs are worth a sketch.
- `front`: verdicts on configs by rules, sketch or compile.
- `ranking`: the ranked cut, and the shortlist of configs to compile.
- `picking`: the model's first pick, with nothing timed.
"""
