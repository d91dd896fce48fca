"""Timing compiled configs of one problem, each checked first.

    LocalBench    in this process, on its current GPU
    ChildBench    in a process of its own, which a config may hang, break or kill
    Team          a `ChildBench` on each of several GPUs

All of them give a config that cannot run, or that computes something else than
the default, a failure. `open_bench` chooses among them.
"""
