"""What each kernel is timed against: one file a kernel, of the same name, with an `ENTRY`."""
