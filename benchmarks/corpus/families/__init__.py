"""Kernel modules of many kinds, measured in full to learn and to judge scores by."""
