"""Tuned configs in the forms of other programs, and back.

python_files  a Python file with a function of the key, and lists of `triton.Config`
command       `asmtune export` and `asmtune import`
"""
