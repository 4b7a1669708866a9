"""Exact joins of whole tables: many rows at once, on all cores."""
