"""A config explained: why it was dropped or won, what limits it, what to try, its hot loop.

record        judges the config and finds the other one to compare with; all that is said, as
              `Explained`; the comparison, its numbers by name; JSON
text          the explanation in a terminal
"""
