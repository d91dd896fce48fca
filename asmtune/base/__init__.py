"""The ground: errors, settings, digests, JSON and files; nothing here knows of kernels or GPUs."""
