"""Readers of users' text: assignments, shapes, sizes, plain Triton functions."""
