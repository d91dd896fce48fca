"""Compiling configs: parallel, without a GPU, each within limits.

The only package that knows Triton's compiler. A compile is split in two:

    front end   in this process    kernel source + config  -> TTIR     (lower)
    back end    in a child         TTIR -> TTGIR -> PTX -> cubin       (child)
    sketch      in a child         TTIR -> TTGIR, and no further       (child)

TTIR is self-contained text, so that a child never imports the user's code:
kernels of notebooks, closures and `__main__` compile like any other. It does
not depend on warps, stages or registers, so that it is made once for all
configs that share their constexprs.

Workers are joblib's: this machine's, or those that `joblib.parallel_config` names
in the thread that begins (workers). What a worker makes where this process cannot
read it comes back with the outcome (worker, artifacts).
"""
