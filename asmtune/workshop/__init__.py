"""Programs for authors and servers of kernels; no launch and no prune report needs them.

Each wing has its commands, records, rendering and tests together. A wing imports the core's rooms
and never another wing; the core names wings as text alone: commands in `cli.app`, functions in
`asmtune/__init__`.

kernel_checks  is a kernel right, and why not: `check_kernel`, `asmtune diagnose` and `new`
regression     has a kernel become slower: `asmtune bench`, `check`
roofline       how near is a kernel to a machine's limits: `asmtune roofline`
lowprec        scales of FP8, and errors through a model
runs           what did a tuning run do: `asmtune runs`
replay         how good are predictions: `asmtune model replay`, `collect`, `train`
exports        tuned configs for stores, engines and Python, and back: `asmtune export`, `import`
"""
