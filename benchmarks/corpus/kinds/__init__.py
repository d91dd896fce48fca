"""Kernels of kinds that the families lack: scores are judged on them, and never fitted to them."""
