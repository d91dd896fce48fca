"""Public packages that use `triton.autotune`, run as they are, with and without `asmtune run`."""
