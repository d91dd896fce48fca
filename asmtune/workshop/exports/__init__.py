"""Tuned configs in the forms of other programs, and back.

moe           files of fused mixtures of experts, as vLLM and SGLang read them
python_files  a Python function, or lists of `triton.Config`; values as text by `literals`
command       `asmtune export` and `asmtune import`
"""
