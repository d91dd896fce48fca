"""Bench runs, their files and their verdicts: have kernels become slower?

plan          kernels and functions to rows, each with its stored config
processes     rows timed in several processes one after another
process_main  what such a process runs: a config compiled and timed, for each row
run           the record of a bench run, and its file
compare       verdicts at a stated level; which runs may be compared
"""
