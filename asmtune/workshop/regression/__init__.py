"""Bench runs, their files, comparison and history: have kernels become slower?

processes     stored configs to rows, timed in several processes one after another
process_main  what such a process runs: a config compiled and timed, for each row
run           the record of a bench run, and its file
efficiency    rates, the share of a roofline over sizes, and the best working point
compare       verdicts at a stated level; which runs may be compared
history       the last hundred runs in short
"""
