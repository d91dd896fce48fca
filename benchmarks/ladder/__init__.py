"""The GEMM ladder: five kernels of growing skill, and the table of what each step gains."""
