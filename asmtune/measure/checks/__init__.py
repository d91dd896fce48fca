"""Checks of a config while it is tuned: what it writes, and that its output is right.

`effects` derives from the IR what the kernel reads and writes. `roles` adds the user's options:
which arguments are restored, zeroed, poisoned or compared. `tensors` finds and copies the memory
under them. `checker` runs configs on them and compares what they write with the `expected` outputs,
within the tolerances of `compare`. `workspaces` are arguments that each config writes in slots of
its own: their sums are compared.
"""
