"""Bench runs, their files, comparison and history: have kernels become slower?

run           what a set of kernels took on stored configs, by process
files         runs as JSON documents
environment   which runs may be compared
compare       verdicts at a stated level; findings, what they are
history       the last hundred runs in short
timing        one config, compiled and timed
"""
