"""Read assembly: PTX, SASS and AMDGCN to instructions, blocks and loops, cubins to resources.

- `program`: the data, for every instruction set; `flow`: blocks, dominators, loops,
  bodies of called functions in the kernel's.
- `ptx`, `sass`, `cubin`: the readers; `amdgcn`: of AMD's text, resources included.
- `nvptx`: classes of PTX opcodes (those of SASS are in `sass`), heads of PTX kernels.
- `amdgpu`: classes, accesses, products and registers of AMDGCN.
- `memory`, `tensor`: bytes and FLOPs of instructions; `counts`: sums by loop depth.

Pure: text or bytes in, data out. Nothing here reads a file, runs a tool or needs a GPU.
"""
