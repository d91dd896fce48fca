"""Bench runs, their files, comparison and history: have kernels become slower?

processes     stored configs to rows, timed in several processes one after another
process_main  what such a process runs
timing        one config, compiled and timed
run           the record of a bench run, and its file
compare       verdicts at a stated level; which runs may be compared
history       the last hundred runs in short
"""
