"""The demonstration: a burst on Spark (`burst`), or without it in this process (`here`)."""

from __future__ import annotations

from streamshed.join import Join, join

WINDOW = "10 minutes"


def funnel() -> Join:
    """The join of the demonstration, without a budget."""
    return join("impressions", "clicks", "orders").on("session").within(WINDOW, time="ts")
