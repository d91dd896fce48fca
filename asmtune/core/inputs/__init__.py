"""Readers of users' text: assignments and shapes, size expressions, plain Triton functions,
patterns of index tensors."""
