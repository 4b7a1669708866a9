"""The laboratory: the papers' experiments, benchmarks, and what they compare Streamshed with.

Nothing in `streamshed` imports it. `pip install 'streamshed[lab]'` brings what it needs.
"""
