"""Keys: arguments, buckets of arguments and functions of arguments.

    key=["M", pow2("N"), multiple(128, "K"), lambda M, N: (M * N).bit_length()]
    key={"M": None, "N": pow2, "K": multiple(128), "cells": lambda M, N: (M * N).bit_length()}

The first form lists parts; the second names them, which two lambdas of the same arguments
need. A bucket rounds up, so that sizes in the same bucket share a key (`buckets`). `parts` reads
`key=` and computes the values of a key at a launch.

Functions must be pure: a launch may call them at any time, or reuse their result for equal
arguments. A tuned config is stored under the part's name, so a function that computes something
else needs another name.
"""
