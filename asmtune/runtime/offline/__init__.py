"""Kernels by name or file, reports of them, queues of shapes: commands without a program's launch.

kernel_sources  a kernel as a user names it, to a problem and a space; its stored config
host_functions  a host function's launches, on a GPU that is assumed; host_arguments
pruning         the command `prune-report` as a function; a pruner for Triton's own autotuner
tuning_queue    shapes of a kernel module, or launches of a host function, tuned one after another;
                recorded_keys of a program
"""
