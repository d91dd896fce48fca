"""Judge configs: rules drop those that cannot run, scorers rank the rest.

- `rules`: what the compiler or the driver would refuse, and remarks on slow configs.
- `scorers`: the base class `Scorer` and the table of scorers by name.
- `roofline`: predicted microseconds, without training, and what to try against the bottleneck.
- `learned`: boosted trees (`trees`), which ship in `data/`, over the columns of `vectors`.
- `error`: how much speed a cut of a ranking kept on unseen kernels; `keep` chooses cuts by it.
"""
