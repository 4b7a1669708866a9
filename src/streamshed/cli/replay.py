"""The command `replay`."""

from __future__ import annotations

import warnings
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from streamshed.cli.app import app
from streamshed.cli.archives import archive_of, named_values
from streamshed.errors import SpecError, StreamshedError
from streamshed.join import Join, join
from streamshed.spec import too_few
from streamshed.terminal import print_ledger

if TYPE_CHECKING:
    from streamshed.ledger import Ledger


@app.command()
def replay(
    ctx: typer.Context,
    streams: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="NAME=PATH…",
            help="A stream: its name, and a Parquet file, folder or pattern.",
        ),
    ] = None,
    job: Annotated[
        Path | None,
        typer.Option(help="Take the join from this job file instead of the options below."),
    ] = None,
    on: Annotated[
        list[str] | None,
        typer.Option(help="A key column, or STREAM=COLUMN; several make one key."),
    ] = None,
    within: Annotated[
        str | None,
        typer.Option(help="The time window: '10 minutes', or a number for integer times."),
    ] = None,
    last: Annotated[int | None, typer.Option(help="A window of this many rows.")] = None,
    time: Annotated[
        list[str] | None, typer.Option(help="The time column, or STREAM=COLUMN for each.")
    ] = None,
    late: Annotated[str, typer.Option(help="How far a row may be behind the clock.")] = "0",
    clock: Annotated[
        str,
        typer.Option(
            help="The stream that sets the clock: min (the slowest) or max (the fastest)."
        ),
    ] = "min",
    by: Annotated[
        str | None,
        typer.Option(help="For a single input: the column that names the streams."),
    ] = None,
    keep_rows: Annotated[int | None, typer.Option(help="Budget: rows of each stream.")] = None,
    keep_total: Annotated[
        int | None, typer.Option(help="Budget: rows of all streams together.")
    ] = None,
    keep_memory: Annotated[
        str | None, typer.Option(help="Budget: memory of all streams together, such as '500 MB'.")
    ] = None,
    shed: Annotated[str | None, typer.Option(help="The policy that evicts rows.")] = None,
    shed_column: Annotated[
        str | None,
        typer.Option(help="Evict the rows with the lowest values of this column instead."),
    ] = None,
    partial: Annotated[
        int | None, typer.Option(help="Also make results with rows of only this many streams.")
    ] = None,
    select: Annotated[
        list[str] | None,
        typer.Option(help="A column of the results: STREAM.COLUMN, or STREAM for all. Repeat it."),
    ] = None,
    estimate: Annotated[
        float | None,
        typer.Option(help="The share of keys to follow in order to estimate missed results."),
    ] = None,
    seed: Annotated[int, typer.Option(help="Seed of the random numbers.")] = 0,
    out: Annotated[Path | None, typer.Option(help="A Parquet file for the results.")] = None,
    json: Annotated[bool, typer.Option("--json", help="Print the ledger as JSON.")] = False,
) -> None:
    """Join Parquet files by a key that all streams share, and print the ledger.

    Rows are read in the order in which the files hold them, and the files of a folder by name. Sort
    them by time, or set --late. For a join that these options cannot describe (outer joins, order
    in time, equalities between pairs, conditions, relations, throttles), use a job file.

    Example: streamshed replay a=a.parquet b=b.parquet --on k --within "10 minutes" --time ts;
    or streamshed replay --job job.toml a=archive/a b=archive/b
    """
    if job is not None:
        _refuse_options(ctx, "streams", "job", "out", "json")
        print_ledger(_replayed(*_of_job(job, streams or []), out), json)
        return
    if not streams or not on:
        raise SpecError(
            "give the streams and their key, as in a=a.parquet b=b.parquet --on k; or a job file, "
            "as in --job job.toml"
        )
    inputs = named_values(streams, "a stream", "clicks=clicks.parquet")
    if by is None and len(inputs) < 2:
        raise too_few(tuple(inputs))
    said = join(by=by) if by is not None else join(*inputs)
    said = _keyed(said, on, inputs).seed(seed)
    if within is not None:
        if not time:
            raise SpecError("--within needs the time column; give --time COLUMN")
        said = said.within(
            _number_or_text(within),
            time=_one_or_each(time),
            late=_number_or_text(late),
            clock=clock,  # type: ignore[arg-type]
        )
    if last is not None:
        said = said.last(last, time=_one_or_each(time) if time and within is None else None)
    if keep_rows is not None or keep_total is not None or keep_memory is not None:
        said = said.keep(rows=keep_rows, total=keep_total, memory=keep_memory)
    if shed is not None or shed_column is not None:
        said = said.shed(shed, column=shed_column)
    if partial is not None:
        said = said.partial(at_least=partial)
    if estimate is not None:
        said = said.estimate(rate=estimate)
    if select:
        said = said.select(*select)
    print_ledger(_replayed(said, inputs, out), json)


def _refuse_options(ctx: typer.Context, *but: str) -> None:
    """Refuse options of a join that the job file says already."""
    for name in ctx.params:
        source = ctx.get_parameter_source(name)
        if name not in but and source is not None and source.name != "DEFAULT":
            option = f"--{name.replace('_', '-')}"
            raise SpecError(f"{option} and --job are both given; the job file says the join")


def _of_job(file: Path, streams: list[str]) -> tuple[Join, Any]:
    """The join of a job file, and its inputs from an archive."""
    from streamshed.jobs import Job

    job = Job.load(file)
    return job.joined, archive_of(job, streams)[0]


def _replayed(said: Join, inputs: Any, out: Path | None) -> Ledger:
    """Run the join, write the results if there is a file for them, and give back the ledger."""
    with warnings.catch_warnings(record=True) as noted:
        warnings.simplefilter("always")
        ledger = said.count(inputs) if out is None else _written(said, inputs, out)
    for note in noted:
        typer.echo(f"note: {note.message}", err=True)
    return ledger


def _written(said: Join, inputs: Any, out: Path) -> Ledger:
    import pyarrow.parquet as pq

    batches = said.replay_batches(inputs)
    # Under another name until it is whole: a run that fails leaves an earlier result alone.
    unfinished = out.with_name(f".{out.name}.part")
    try:
        with pq.ParquetWriter(unfinished, batches.schema) as writer:
            for batch in batches:
                writer.write_batch(batch)
        unfinished.replace(out)
    except OSError as error:
        raise StreamshedError(f"the results cannot be written to {str(out)!r}: {error}") from error
    finally:
        unfinished.unlink(missing_ok=True)
    return batches.ledger


def _keyed(said: Join, columns: Sequence[str], streams: Collection[str]) -> Join:
    if not any("=" in column for column in columns):
        return said.on(*columns)
    by_stream: dict[str, list[str]] = {}
    for text in columns:
        stream = text.partition("=")[0]
        if stream not in streams and ("." in stream or stream != stream.strip()):
            raise SpecError(
                f"--on {text!r}: this command joins by key columns only; give --on COLUMN, or --on "
                f"STREAM=COLUMN for every stream. In Python it is .on({text!r})"
            )
        for stream, column in named_values([text], "a key column", "--on clicks=ad_id").items():
            by_stream.setdefault(stream, []).append(column)
    return said.on(**by_stream)


def _one_or_each(columns: Sequence[str]) -> str | dict[str, str]:
    if len(columns) == 1 and "=" not in columns[0]:
        return columns[0]
    return named_values(columns, "a time column", "--time clicks=ts")


def _number_or_text(text: str) -> int | str:
    try:
        return int(text)
    except ValueError:
        return text
