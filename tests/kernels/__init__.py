"""Checks of the kernels that come with asmtune."""
