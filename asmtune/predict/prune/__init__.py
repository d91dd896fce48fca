"""The funnel: from a space to the configs worth timing, and why.

- `flow`: `Funnel`, all stages in order.
- `tiles`: which tile axes are held: those that the programs of a launch do not follow.
- `rounds`: which configs of a large space are sketched, and the features of the others.
- `front`: verdicts on configs by rules, sketch or compile.
- `ranking`: the ranked cut, and the shortlist of configs to compile.
- `picking`: the model's first pick, with nothing timed.
"""
