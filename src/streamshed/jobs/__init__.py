"""Jobs: a join with its sources, its sink and its settings, described by a file."""

from __future__ import annotations

from streamshed.jobs.job import Job
from streamshed.jobs.reading import JobError

__all__ = ["Job", "JobError"]
