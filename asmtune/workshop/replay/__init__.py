"""Replay: the funnel over recorded timings, to know its regret without a GPU.

collect         every config of a space, timed on this machine's GPU
flow            verdicts on recorded configs, ranked by each scorer
results         shares of the best speed kept, as records and tables
training_rows   timed configs as the learned scorer's columns; those that ship lie in `rows/`
fitting         the learned scorer's trees, by LightGBM
command         `asmtune model`, with `train_command`
"""
