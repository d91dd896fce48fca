"""Tests of the benchmarks: what they compute, write and print; none is timed."""
