"""Kernels that come with asmtune: tuned, checked, and made to be copied."""
