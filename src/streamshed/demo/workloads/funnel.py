"""Impressions, clicks and orders of a shop: many sessions look, few click, fewer buy."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from streamshed.demo.workloads.arrivals import SECOND, Ints, timestamps
from streamshed.demo.workloads.checks import require

_MINUTE = 60 * SECOND


@dataclass(frozen=True)
class FunnelWorkload:
    """Sessions that see ads; shoppers click on some of them, and order what they clicked on.

    The impressions of a session, five or so, are spread over eight minutes. A click follows its
    impression within seconds, an order its click within a minute or two.

    Attributes:
        sessions: how many begin in a minute.
        minutes: how long the streams are.
        shoppers: the share of sessions that click, on two impressions of five, and order, after
            three clicks of ten; the others click on one impression of a hundred, and never order.
        seed: of all randomness.

    Examples:
        >>> tables = FunnelWorkload(sessions=60, minutes=10, seed=1).tables()
        >>> {name: table.num_rows for name, table in tables.items()}
        {'impressions': 1533, 'clicks': 105, 'orders': 19}
        >>> tables["orders"].column_names
        ['session', 'ts', 'price']
    """

    sessions: int = 5_000
    minutes: int = 20
    shoppers: float = 0.1
    seed: int = 0

    def __post_init__(self) -> None:
        """Refuse what cannot be generated."""
        require(self.sessions >= 1, "sessions", self.sessions, "1 or more")
        require(self.minutes >= 1, "minutes", self.minutes, "1 or more")
        require(0 <= self.shoppers <= 1, "shoppers", self.shoppers, "from 0 to 1")

    def tables(self) -> dict[str, pa.Table]:
        """Generate the streams.

        Returns:
            For each stream, in time order: `session` (int64), `ts` (timestamp in microseconds, UTC,
            beginning with 1970), and `ad` (int64) or, of orders, `price` (float64).
        """
        random = np.random.default_rng([self.seed, 3])
        count = self.sessions * self.minutes
        shops = random.random(count) < self.shoppers
        begun = random.uniform(0.0, 60.0 * self.minutes, count)
        session = np.repeat(np.arange(count), 1 + random.poisson(np.where(shops, 5.0, 3.0)))
        seen = begun[session] + random.uniform(0.0, 480.0, len(session))
        ad = random.integers(0, 1_000, len(session))

        click = np.flatnonzero(random.random(len(session)) < np.where(shops[session], 0.4, 0.01))
        clicked = seen[click] + random.exponential(5.0, len(click))
        chosen = np.flatnonzero((random.random(len(click)) < 0.3) & shops[session[click]])
        ordered = clicked[chosen] + random.exponential(90.0, len(chosen))
        price = random.lognormal(3.0, 1.0, len(chosen)).round(2)
        return {
            "impressions": self._stream(session, seen, ad=ad),
            "clicks": self._stream(session[click], clicked, ad=ad[click]),
            "orders": self._stream(session[click[chosen]], ordered, price=price),
        }

    def _stream(
        self, session: Ints, seconds: npt.NDArray[np.float64], **more: npt.NDArray[Any]
    ) -> pa.Table:
        within = np.flatnonzero(seconds < 60.0 * self.minutes)
        order = within[np.argsort(seconds[within], kind="stable")]
        times = timestamps((seconds[order] * SECOND).astype(np.int64))
        columns = {name: values[order] for name, values in more.items()}
        return pa.table({"session": session[order], "ts": times, **columns})

    def write(self, folder: Path) -> Iterator[int]:
        """Write the streams minute by minute, a Parquet file of each in a folder of its name.

        A file is there as a whole or not at all, so that a running query can read the folders.

        Yields:
            The rows of each minute, once they are written.
        """
        tables = self.tables()
        for name in tables:
            (folder / name).mkdir(parents=True, exist_ok=True)
        for minute in range(self.minutes):
            rows = 0
            for name, table in tables.items():
                of_minute = pc.equal(pc.divide(table["ts"].cast(pa.int64()), _MINUTE), minute)
                part = table.filter(of_minute)
                file = folder / name / f"{minute:04d}.parquet"
                pq.write_table(part, file.with_name(f".{file.name}"))
                file.with_name(f".{file.name}").rename(file)
                rows += part.num_rows
            yield rows
