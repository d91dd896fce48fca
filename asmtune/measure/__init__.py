"""Checks and times compiled configs on a GPU.

`timing/` takes samples: interleaved, with a cold L2 cache, and with their spread. `checks/` saves
and restores the arguments of a launch, and compares outputs. `bench/` puts both together, in this
process or in a child process. `memory` says how much of the GPU's memory tuning may take.
`accuracy` measures the errors of an output.

How a config flows: a bench loads its artifact, `checks` runs it once and compares what it wrote
with the output of the default config, and the race of `timing` times those that pass.
"""
