"""The demonstration: on Spark (`live`), or without it in this process (`here`)."""

from __future__ import annotations

from streamshed.join import Join, join


def funnel() -> Join:
    """The join of the demonstration on Spark, without a budget."""
    return join("impressions", "clicks", "orders").on("session").within("10 minutes", time="ts")
