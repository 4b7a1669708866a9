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

from streamshed.errors import StreamshedError

_MINUTE = 60_000_000
"""Microseconds."""
_TEXTS = (
    (
        "page",
        pa.array(
            f"https://shop.example/department/{n % 7}/shelf/{n % 83}/product-{7919 * n:08d}"
            f"?campaign=autumn&banner={n % 13}"
            for n in range(997)
        ),
    ),
    (
        "agent",
        pa.array(
            "Mozilla/5.0 (Windows NT 10.0; Win64; x64) AppleWebKit/537.36 (KHTML, like Gecko) "
            f"Chrome/{100 + n}.0.{6000 + n}.{n} Safari/537.36"
            for n in range(40)
        ),
    ),
)
"""Columns of wide rows, and the values that they have."""


@dataclass(frozen=True)
class FunnelWorkload:
    """Sessions that see ads; shoppers click on some of them, and order what they clicked on.

    The impressions of a session, five or so, are spread over eight minutes. A click follows its
    impression within seconds, an order its click within a minute or two.

    Attributes:
        sessions: how many begin in a minute.
        minutes: how long the streams are.
        burst: how many times as many begin in a minute of the middle third.
        shoppers: the share of sessions that click, on two impressions of five, and order, after
            three clicks of ten; the others click on one impression of a hundred, and never order.
        wide: whether rows also have `page` and `agent`, as in the logs of a shop: an address and
            the name of a browser, together about 200 bytes.
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
    burst: int = 1
    shoppers: float = 0.1
    wide: bool = False
    seed: int = 0

    def __post_init__(self) -> None:
        """Refuse what cannot be generated."""
        for name in ("sessions", "minutes", "burst"):
            if getattr(self, name) < 1:
                raise StreamshedError(f"{name} must be 1 or more, got {getattr(self, name)!r}")
        if not 0 <= self.shoppers <= 1:
            raise StreamshedError(f"shoppers must be from 0 to 1, got {self.shoppers!r}")

    @property
    def bursting(self) -> range:
        """The minutes of the burst."""
        return range(self.minutes // 3, self.minutes - self.minutes // 3)

    def tables(self) -> dict[str, pa.Table]:
        """Generate the streams.

        Returns:
            For each stream, in time order: `session` (int64), `ts` (timestamp in microseconds, UTC,
            beginning with 1970), and `ad` (int64) or, of orders, `price` (float64); where they are
            wide also `page` and `agent` (strings).
        """
        random = np.random.default_rng([self.seed, 3])
        begin = [self.sessions * (self.burst if m in self.bursting else 1) for m in self._minutes]
        count = sum(begin)
        shops = random.random(count) < self.shoppers
        begun = 60.0 * np.interp(
            random.random(count) * count, np.cumsum([0, *begin]), [0.0, *range(1, self.minutes + 1)]
        )
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

    @property
    def _minutes(self) -> range:
        return range(self.minutes)

    def _stream(
        self, session: npt.NDArray[Any], seconds: npt.NDArray[Any], **more: npt.NDArray[Any]
    ) -> pa.Table:
        within = np.flatnonzero(seconds < 60.0 * self.minutes)
        order = within[np.argsort(seconds[within], kind="stable")]
        times = pa.array((seconds[order] * 1e6).astype(np.int64)).cast(pa.timestamp("us", "UTC"))
        columns = {name: values[order] for name, values in more.items()}
        if self.wide:
            columns |= {name: texts.take(session[order] % len(texts)) for name, texts in _TEXTS}
        return pa.table({"session": session[order], "ts": times, **columns})

    def by_minute(self) -> Iterator[dict[str, pa.Table]]:
        """The streams minute by minute."""
        tables = self.tables()
        for minute in self._minutes:
            yield {
                name: table.filter(pc.equal(minutes_of(table["ts"]), minute))
                for name, table in tables.items()
            }

    def write(self, folder: Path) -> Iterator[int]:
        """Write the streams minute by minute, a Parquet file of each in a folder of its name.

        A file is there as a whole or not at all, so that a running query can read the folders.

        Yields:
            The rows of each minute, once they are written.
        """
        for minute, tables in enumerate(self.by_minute()):
            for name, table in tables.items():
                (folder / name).mkdir(parents=True, exist_ok=True)
                file = folder / name / f"{minute:04d}.parquet"
                pq.write_table(table, file.with_name(f".{file.name}"))
                file.with_name(f".{file.name}").rename(file)
            yield sum(table.num_rows for table in tables.values())


def minutes_of(times: pa.ChunkedArray) -> pa.ChunkedArray:
    """The minute of each time."""
    return pc.divide(times.cast(pa.int64()), _MINUTE)
