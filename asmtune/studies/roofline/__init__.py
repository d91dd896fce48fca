"""Kernels on a machine's roofline, before tuning and after.

    roofs     what the machine can do: compute and memory, each rate with its source
    counts    what a launch asks for: FLOPs and bytes, by the IR
    points    a config of a launch with its time; before and after; the whole
    survey    from a launch to its points: which config is tuned, and where times come from
    clock     times now, on this machine's GPU

The form is that of Williams, Waterman and Patterson (2009).
"""
