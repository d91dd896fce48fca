"""asmtune against `triton.autotune` and against timing everything, on one machine in one run."""
