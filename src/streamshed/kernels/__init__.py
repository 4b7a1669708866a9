"""Compiled building blocks: everything in here is numba, and knows nothing of Arrow or Spark."""
