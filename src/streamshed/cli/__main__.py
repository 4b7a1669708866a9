"""`python -m streamshed.cli`."""

from streamshed.cli import main

main()
