"""Times compiled configs of one problem, each checked first.

    LocalBench    in this process, on its current GPU
    ChildBench    in a process of its own, which a config may hang, break or kill

A config that cannot run, or whose output differs from the default config's, gets a failure.
`open_bench` in `dedup` chooses among them. In the process that times, `trials` loads, checks and
times configs on a `BenchGpu`. `child_main` is the program of a `ChildBench`'s process; `messages`
and `argument_codec` are what the two send each other.
"""
