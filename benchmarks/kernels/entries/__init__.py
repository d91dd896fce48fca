"""Entries: the vendor's function of each kernel, in a file named like the kernel, as `ENTRY`."""
