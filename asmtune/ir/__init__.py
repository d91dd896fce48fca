"""Text to data: `asm` reads PTX, SASS and cubins, `ttir` reads Triton's first IR.

Pure: nothing here reads a file, runs a tool or needs a GPU.
"""
