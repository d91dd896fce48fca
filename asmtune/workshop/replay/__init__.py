"""Replay: the funnel over recorded timings, to know its regret without a GPU.

collect         every config of a space, timed on this machine's GPU
flow            verdicts on recorded configs, ranked by each scorer
results         shares of the best speed kept, as records and tables
measured_error  tables of a scorer's error, which `--keep auto` chooses by
train           training rows of the learned scorer, from recorded timings
command         `asmtune model`, with `train_command`
"""
