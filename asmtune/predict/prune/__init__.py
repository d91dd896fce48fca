"""The funnel: from a space to the configs worth timing, and why.

- `flow`: `Funnel`, all stages in order.
- `tiles`: which tile axes are held: those that the programs of a launch do not follow.
- `arithmetic`: the first stage of a large space: which configs are worth a sketch.
- `front`: verdicts on configs by rules, sketch or compile.
- `ranking`: the ranked cut, and the shortlist of configs to compile.
- `picking`: the model's first pick, with nothing timed.
"""
