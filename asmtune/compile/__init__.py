"""Compiles configs in parallel, without a GPU, each within limits of time and memory.

A compile has two halves:

    front end   in this process    kernel source + config  -> TTIR     (lower)
    back end    in a child         TTIR -> TTGIR -> PTX -> cubin       (back_end)
    sketch      in a child         TTIR -> TTGIR, and no further       (back_end)

A Gluon kernel's front end makes TTGIR, in which layouts and `num_warps` are set already: it runs
for each of these, and the back end begins one stage later.

TTIR is self-contained text, so a child never imports the user's code: kernels of notebooks,
closures and `__main__` compile like any other. TTIR does not depend on warps, stages or
registers, so it is made once for all configs that share their constexprs.

How a config flows: `pool` groups configs so that neighbours share work and lowers them. The threads
of `worker` take the groups, and give each config to a `sandbox`, which calls functions in a
child process (`child_main`) and kills it at a time limit. The child looks the config up in
`artifacts` (the cache on disk, whose `seals` others cannot make), compiles what is missing, stores
it, and reads it: a child that cannot write to the cache sends the artifact back with the outcome.
TTIR and sketches lie beside the artifacts, for other shapes and processes. `load` makes a launch of
an artifact, or hands one to Triton's own next launch; `source` identifies a kernel's source.
"""
