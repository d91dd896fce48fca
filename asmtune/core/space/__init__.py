"""Configs and the spaces that they come from.

A `Space` is axes with values, and named constraints over them:

    Space({"BLOCK": [128, 256, 512], "num_warps": [4, 8]}).where(
        "a thread holds 4 elements or more",
        lambda BLOCK, num_warps: BLOCK >= num_warps * 32 * 4,
    )

It is generated lazily, in the order of its axes (the last varies fastest).
An existing list of `triton.Config` is a space too: `Space.from_configs`.
"""
