"""Spaces of configs.

A `Space` has axes with values, and named constraints over them:

    Space({"BLOCK": [128, 256, 512], "num_warps": [4, 8]}).where(
        "a thread holds 4 elements or more",
        lambda BLOCK, num_warps: BLOCK >= num_warps * 32 * 4,
    )

Its configs come in the order of its axes (the last varies fastest). `Space.points` has them as
columns, each made when it is asked for; a space of millions is refused before it is enumerated.
`Space.from_configs` makes a space of an existing list of `triton.Config`.
"""
