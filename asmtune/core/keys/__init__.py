"""What a key is made of: arguments, buckets of arguments and functions of arguments.

    key=["M", pow2("N"), multiple(128, "K"), lambda M, N: (M * N).bit_length()]
    key={"M": None, "N": pow2, "K": multiple(128), "cells": lambda M, N: (M * N).bit_length()}

The first form lists parts; the second names them, which two lambdas of the same
arguments need. A bucket rounds up, so that a new size in it is no new key.

Functions must be pure: a launch may ask them at any time, or go by what they
answered for the same arguments before. A tuned config is stored under the part's
name, so that a function that computes something new needs a new name.
"""
