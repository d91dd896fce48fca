"""Estimate features from TTIR and arithmetic alone, for thousands of configs at once.

    TTIR of some tiles --facts--> numbers --interpolate--> every tile --estimate--> columns

- `facts`: a tile's TTIR and its launch to a structure, and numbers that differ by tile.
- `interpolate`: both of them, and the numbers of tiles whose TTIR was never made, from other tiles.
- `estimate`: numbers, warps, stages and caps to features: the arithmetic of a program on an SM.
- `demands`: the sums of a program, to which its operations and products add.
"""
