"""`python -m vsrkit`."""

from vsrkit.cli import main

main()
