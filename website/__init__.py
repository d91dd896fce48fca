"""The documentation: its pages' code that runs, numbers from result files, and the site."""
