"""Observers of the join: what shedding costs, estimated from a sample of keys."""
