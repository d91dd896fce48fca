"""Errors of kernels and functions against a reference, and limits that guard them.

`subject` finds what is called and its reference, `inputs` makes tensors of hard distributions or
reads them, `run` measures variants, and `guard` judges a run by limits and a history.
"""
