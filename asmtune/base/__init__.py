"""Helpers without knowledge of kernels or GPUs: every other room imports from here.

Errors and settings, digests and versions, JSON (`json_codec` checks single values and reads
dataclasses), whole files, folders that nobody else can change (`trust`), child processes, limits
on time and pauses of the garbage collector (`deadline`), messages and HTML tables.
"""
