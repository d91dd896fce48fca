"""`python -m asmtune`."""

from asmtune.cli import main

main()
