"""Estimate profiles before compiling, from TTGIR: the PTX that it will become.

    sketch --SketchReader--> Profile --launch_features(work)--> Features

TTGIR takes a tenth of a compile. It has the loops, pipelined and specialised as they will run,
and a layout for every tensor. The work of LLVM and ptxas is estimated.

- `reader`: a sketch to a profile; registers and spills.
- `kernel`: walks the operations, and sums them up by segment (`sums`) in the classes of `costs`.
- `values`, `layouts`, `demand`: types and layouts, and the elements a thread really computes.
- `memory`, `products`, `tiles`: operations on global memory, matrix products and whole tiles.
"""
