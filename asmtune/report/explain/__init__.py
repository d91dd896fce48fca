"""A config explained: why it was dropped or won, what limits it, what to try, its hot loop.

request       judges the config, finds the other one to compare with, and reads their code
record        all that is said, as `Explained`; the comparison, its numbers by name; JSON
text          the explanation in a terminal
"""
