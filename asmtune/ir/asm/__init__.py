"""Read assembly: PTX and SASS to instructions, blocks and loops, cubins to resources.

Pure: text or bytes in, data out. Nothing here reads a file, runs a tool or needs a GPU.
"""
