"""Profiles before compiling: what TTGIR says the PTX will be made of.

sketch --SketchReader--> Profile --launch_features(work)--> Features

A tenth of a compile makes TTGIR: its loops, pipelined and specialised as they will
run, and a layout for every tensor. What LLVM and ptxas make of it is estimated.
"""
