"""The kernels that come with asmtune against the vendor's functions."""
