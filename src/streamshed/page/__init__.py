"""A page that shows how running queries do: `serve` starts it, and a browser looks at it.

It reads only what Spark's progress tells of each batch: counts, bytes and seconds, never a row.
"""

from __future__ import annotations

from streamshed.page.server import Page, serve

__all__ = ["Page", "serve"]
