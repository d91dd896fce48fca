"""What each kernel is checked on: one file a kernel, of the same name, with a `CASE`."""
