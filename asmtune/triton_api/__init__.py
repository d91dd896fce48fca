"""Every use of what Triton and PyTorch do not document: one file a concern.

Nothing else in asmtune names a private module or attribute of theirs; `tests/test_layers.py` holds
that. Each function here has a contract test in `tests/triton_api/`, which says what it returns on a
tiny kernel or tensor: a new Triton fails there by name.

    jit_functions   kernels and their decorators: parameters, sources, the globals that they read
    compiler        front end, stages and options of Triton's compiler
    caches          what Triton's caches are keyed by; artifacts put into them
    launching       the driver, compiled kernels and what a launch of one needs
    interpreter     Triton's interpreter, corrected and made quicker
    autotuners      Triton's autotuner, and what a program has told it
    assumed_gpu     a GPU that is not here: answers for it, and launches handed over
    user_state      the user's modes of PyTorch, left and entered again
    tensors         PyTorch's functions below its Python, and traces of its operations
    compiled_graphs launches that `torch.compile` traces
"""
