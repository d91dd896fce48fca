"""Rivals of each kernel: one file a kernel, of the same name, with an `ENTRY`."""
