"""From the arguments of a launch to its compiled kernel, in one lookup.

    arguments -> words -> plan -> grid -> driver
                            | none: slow(grid, args, kwargs, key, held), in Python

`words` say of the arguments what Triton specialises by, or finer, and the values that a
config depends on. A plan is made from what Triton itself compiled for the first launch of
those words, so that Triton alone decides what runs. Two launchers do the same: a C part,
built by the machine's C compiler at the first launch as Triton builds its own, and a
Python part where there is none.
"""
