"""From the arguments of a launch to its compiled kernel, in one lookup.

    arguments -> launch key -> plan -> grid -> driver
                                | none: slow(grid, args, kwargs, key, held), in Python

The launch key holds, per argument, what Triton specialises on (or more), and the values of the
tuning key. A plan is made from what Triton itself compiled for the first launch of a launch
key, so that Triton alone decides what runs. Arguments that cannot be keyed always take the slow
path.

Rules of `@triton.heuristics` compute arguments at each launch, from the arguments and the config of
the key. Such a kernel has a plan for each combination of results: the launch key leads to one of
them, whose config the rules are called with, and the key with the results to the plan itself.
Results without a plan go with the launch to the slow path: each rule is called once a launch. Only
where a rule raises, or the config is forgotten meanwhile, does the slow path call all rules again.

`native/*.c` is the launcher, built by the machine's C compiler at the first launch as Triton
builds its own. Where it cannot be, `plain` sends each launch the slow path. `planning` chooses
between them, describes a kernel's parameters to the C part and makes plans.
`calls.c` does whole calls of host functions, with their allocations, for `runtime/replay_calls`.
"""
