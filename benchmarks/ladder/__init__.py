"""GEMM ladder: five kernels, each faster than the one before, and the gain of each step."""
