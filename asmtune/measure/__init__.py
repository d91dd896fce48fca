"""Timing on a GPU: interleaved, L2 cold, with its spread."""
