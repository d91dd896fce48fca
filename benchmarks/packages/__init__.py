"""Public packages that use `triton.autotune`, unchanged, with and without `asmtune run`."""
