"""Kernels that the model is fitted on (`families`), and kernels that judge it (`kinds`)."""
