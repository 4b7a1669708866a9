"""Slow, plain and obvious: what docs/meaning.md says, to compare the compiled code with."""
