"""Programs written for `triton.autotune`, unchanged, through asmtune.

`redirect` changes Triton while a patch holds, `options` are what a patch is given,
`converting` makes an `AsmAutotuner` of what Triton's decorator was given, and `twins` launch
for autotuners that were there before.
"""
