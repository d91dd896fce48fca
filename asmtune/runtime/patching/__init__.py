"""`asmtune.patch()`: programs written for `triton.autotune` run through asmtune unchanged.

`redirect` changes Triton while a patch is active. `patched_autotuner` makes an `AsmAutotuner`
with the options of one of Triton's autotuners, and lets it launch for autotuners that existed
before the patch.
"""
