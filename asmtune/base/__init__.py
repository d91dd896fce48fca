"""Helpers without knowledge of kernels or GPUs: every other room imports from here.

Errors and settings, digests and versions, JSON (`json_codec` checks single values and reads
dataclasses), whole files, child processes, limits on time (`deadline`), pauses of the garbage
collector (`collection`), messages, HTML tables and pandas frames.
"""
