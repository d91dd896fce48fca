"""Programs over the library; `api` has those that users call as functions.

api           `asmtune.accuracy`, `bench`, `check`, `prune_report` and `roofline`
stored        kernels as users name them, and their stored configs
tuning_queue  shapes and recorded keys tuned one after another, for `asmtune tune`
accuracy/     errors of kernels against references, and limits that guard them
regression/   bench runs and checks: have kernels become slower?
roofline/     kernels under a machine's roofs, before tuning and after
replay/       the funnel and the search over recorded timings, without a GPU
collect       times whole spaces on a GPU, for replay and training
train         training rows of the learned scorer
"""
