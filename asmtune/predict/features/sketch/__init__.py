"""Estimate profiles before compiling, from TTGIR: the PTX that it will become.

    sketch --SketchReader--> Profile --launch_features(work)--> Features

TTGIR takes a tenth of a compile. It has the loops, pipelined and specialised as they will run,
and a layout for every tensor. The work of LLVM and ptxas is estimated.

- `reader`: a sketch to a profile.
- `registers`: the registers that a thread needs, and spills.
- `kernel`: walks the operations, and sums them up by segment.
- `values`, `layouts`, `demand`: types, costs and layouts, and the elements a thread really
  computes.
- `moves`: how the lanes of a warp lie over global and shared memory.
- `memory`, `tiles`: operations on global memory, and on whole tiles, products included.
"""
