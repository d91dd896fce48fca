"""Judging configs: rules that drop what cannot run, scorers that rank the rest."""
