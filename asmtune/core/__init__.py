"""The nouns of the library, without a compiler and without a GPU.

Users write a kernel module (`kernel_module`, imported by `user_modules`) or type sizes and
arguments (`inputs/`). It gives a `Problem`, a kernel with its arguments and grid, and a `Space` of
`Config` points (`space/`). A `Target` (`hardware/`) holds a device's limits and rates, and
`occupancy` computes with them. `index_values` says what index tensors hold, `assumed_tensors`
those without memory.
`keys/` reads the key that a tuned config is stored by, and `records/` holds the results.
`size_rules` choose a config by sizes alone, and `failures` turns exceptions of compilers and user
code into values.
"""
