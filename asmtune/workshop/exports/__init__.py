"""Tuned configs in the forms of other programs, and back.

moe           files of fused mixtures of experts, as vLLM and SGLang read them
python_files  a Python file with a function of the key, and lists of `triton.Config`
command       `asmtune export` and `asmtune import`
"""
