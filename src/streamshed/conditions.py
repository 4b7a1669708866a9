"""Shared keys, and conditions between two rows."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

from streamshed.arguments import Names, PerStream, column_name, real
from streamshed.errors import SpecError, listed

_METHOD = ".on()"

Columns = str | Mapping[str, str]
"""The name of a column, the same in every stream, or a mapping from streams to names."""


@dataclass(frozen=True, slots=True)
class SharedKey:
    """One key, of one or more columns, that all rows of a result share.

    Example:
        >>> SharedKey.of(("k", "l"), {}, Names(("a", "b"), None)).columns_for("b")
        ('k', 'l')
        >>> SharedKey.of((), {"a": "x", "b": "y"}, Names(("a", "b"), None)).columns_for("b")
        ('y',)
    """

    columns: PerStream[tuple[str, ...]]

    @classmethod
    def of(
        cls, shared: tuple[object, ...], by_stream: Mapping[str, object], names: Names
    ) -> SharedKey:
        """Read the arguments of `.on`: names for all streams, or names for each.

        Args:
            shared: The names of the key columns, the same in every stream.
            by_stream: For each stream the name of its key column, or a list of names.
            names: The streams of the join.
        """
        if shared and by_stream:
            raise SpecError(
                f"{_METHOD}: the columns {listed(map(str, shared))} are for all streams, but "
                f"{listed(by_stream)} have their own; say either, as in .on('k') or "
                ".on(a='x', b='y')"
            )
        if by_stream:
            return cls(_read_by_stream(by_stream, names))
        return cls(PerStream(everywhere=_read_shared(shared)))

    def columns_for(self, stream: str) -> tuple[str, ...]:
        """The key columns of a stream, in the order in which they are compared."""
        return self.columns.get(stream) or ()


def _read_shared(shared: tuple[object, ...]) -> tuple[str, ...]:
    if not shared:
        raise SpecError(f"{_METHOD}: no key column was named; name one, as in .on('k')")
    columns = tuple(_key_column(column, f"{_METHOD}: the key column") for column in shared)
    for position, column in enumerate(columns):
        if column in columns[:position]:
            raise SpecError(f"{_METHOD}: the key column {column!r} was named twice; name it once")
    return columns


def _read_by_stream(by_stream: Mapping[str, object], names: Names) -> PerStream[tuple[str, ...]]:
    columns = names.read(by_stream, _METHOD, "key column", _key_columns)
    covered = columns.among(names.streams)
    missing = [stream for stream in names.streams if stream not in covered]
    if missing:
        raise SpecError(
            f"{_METHOD}: no key column was named for {listed(missing)}; name one for every stream"
        )
    (first, expected), *others = columns.named
    for stream, found in others:
        if len(found) != len(expected):
            raise SpecError(
                f"{_METHOD}: stream {first!r} has {len(expected)} key columns "
                f"({listed(expected)}), but stream {stream!r} has {len(found)} "
                f"({listed(found)}); name equally many for every stream"
            )
    return columns


def read_met(by_stream: Mapping[str, object], names: Names) -> PerStream[tuple[str, ...]]:
    """Read the arguments of `.through`: for every stream the columns of the relation it meets."""
    method = ".through()"
    if names.by is not None:
        raise SpecError(
            f"{method}: the streams are named by the column {names.by!r}; only streams with "
            "names can be joined through a relation"
        )
    if not by_stream:
        raise SpecError(
            f"{method}: no column of the relation was named; name one for every stream, as in "
            f".through(relation, {names.streams[0]}='a')"
        )
    columns = names.read(by_stream, method, "column of the relation", _key_columns)
    missing = [stream for stream in names.streams if columns.get(stream) is None]
    if missing:
        raise SpecError(
            f"{method}: no column of the relation was named for {listed(missing)}; name one for "
            "every stream"
        )
    return columns


def _key_columns(said: object, what: str) -> tuple[str, ...]:
    if isinstance(said, list | tuple) and said:
        return tuple(_key_column(column, what) for column in said)
    return (_key_column(said, what),)


def _key_column(said: object, what: str) -> str:
    if isinstance(said, str) and "=" in said:
        raise SpecError(
            f"{what} is {said!r}: a condition between two streams stands for itself; say "
            ".on('a.x = b.x', 'b.y = c.z'), or name columns, as in .on(a='x', b='y')"
        )
    return column_name(said, what)


@dataclass(frozen=True)
class PairCondition:
    """A condition that every two rows of a result meet.

    Args:
        columns: The columns that are compared, for each stream.
    """

    columns: PerStream[tuple[str, ...]]

    name: ClassVar[str]

    def columns_for(self, stream: str) -> tuple[str, ...]:
        """The columns of a stream that are compared."""
        return self.columns.get(stream) or ()

    def check(self, names: Names) -> None:
        """Refuse columns of streams that the join does not have, or that some stream lacks."""
        method = f"{self.name}()"
        if names.by is not None:
            raise SpecError(
                f"{method}: the streams are named by the column {names.by!r}; only streams "
                "with names can be compared two by two"
            )
        for stream, _ in self.columns.named:
            names.check(stream, method)
        missing = [stream for stream in names.streams if not self.columns_for(stream)]
        if missing:
            raise SpecError(
                f"{method}: no column was named for {listed(missing)}; name one for every stream"
            )


@dataclass(frozen=True)
class Near(PairCondition):
    """The numbers of two rows differ by at most a distance."""

    distance: float

    name: ClassVar[str] = "near"

    def __str__(self) -> str:
        return f"near({_said(self.columns)}, {self.distance!r})"


@dataclass(frozen=True)
class Cosine(PairCondition):
    """The cosine of the angle between the vectors of two rows has a minimum."""

    at_least: float

    name: ClassVar[str] = "cosine"

    def __str__(self) -> str:
        return f"cosine({_said(self.columns)}, at_least={self.at_least!r})"


@dataclass(frozen=True)
class InnerProduct(PairCondition):
    """The inner product of the vectors of two rows has a minimum."""

    at_least: float

    name: ClassVar[str] = "inner_product"

    def __str__(self) -> str:
        return f"inner_product({_said(self.columns)}, at_least={self.at_least!r})"


@dataclass(frozen=True)
class Where(PairCondition):
    """A function of the user says whether two rows match."""

    function: Callable[[Any, Any], Any] = field(compare=False)
    code: tuple[str, ...] = field(init=False, repr=False)
    """What the function says: one that was sent to another process is still the same."""

    name: ClassVar[str] = "where"

    def __post_init__(self) -> None:
        object.__setattr__(self, "code", _code_of(self.function))

    def __str__(self) -> str:
        said = ", ".join(map(repr, self.columns.everywhere or ()))
        return f"where({getattr(self.function, '__name__', self.function)}, {said})"


def near(column: Columns, distance: float) -> Near:
    """Match rows whose numbers differ by at most a distance.

    Args:
        column: The column with the numbers, or a mapping from streams to such columns.
        distance: The largest difference between two numbers, 0 or more.

    Example:
        >>> import streamshed as ss
        >>> ss.join("a", "b").on(ss.near("heat", 0.5)).within("1 minute", time="ts")
        join('a', 'b').on(near('heat', 0.5)).within('1 minute', time='ts')
    """
    apart = _number(distance, "near(): the distance")
    if apart < 0:
        raise SpecError(f"near(): the distance is {distance!r}; give a number of 0 or more")
    return Near(_compared(column, "near()"), apart)


def cosine(column: Columns, *, at_least: float) -> Cosine:
    """Match rows whose vectors point in nearly the same direction.

    Args:
        column: The column with the vectors, lists of numbers of one length, or a mapping from
            streams to such columns.
        at_least: The smallest cosine of the angle between two vectors, from -1 to 1.

    Example:
        >>> import streamshed as ss
        >>> ss.join("a", "b").on(ss.cosine("scene", at_least=0.8)).last(100)
        join('a', 'b').on(cosine('scene', at_least=0.8)).last(100)
    """
    least = _number(at_least, "cosine(): `at_least`")
    if not -1 <= least <= 1:
        raise SpecError(f"cosine(): `at_least` is {at_least!r}; give a number from -1 to 1")
    return Cosine(_compared(column, "cosine()"), least)


def inner_product(column: Columns, *, at_least: float) -> InnerProduct:
    """Match rows whose vectors have a large inner product.

    Args:
        column: The column with the vectors, lists of numbers of one length, or a mapping from
            streams to such columns.
        at_least: The smallest inner product of two vectors.

    Example:
        >>> import streamshed as ss
        >>> ss.join("a", "b").on(ss.inner_product("words", at_least=3)).last(100)
        join('a', 'b').on(inner_product('words', at_least=3.0)).last(100)
    """
    least = _number(at_least, "inner_product(): `at_least`")
    return InnerProduct(_compared(column, "inner_product()"), least)


def where(function: Callable[[Any, Any], Any], /, *columns: str) -> Where:
    """Match rows by a function of your own.

    Args:
        function: Returns whether two rows match. It gets both rows, in the order of the join's
            streams, with the named columns as fields; numba compiles it.
        columns: The columns that the function uses, numbers or booleans; every stream has them.

    Example:
        >>> import streamshed as ss
        >>> def rising(one, other):
        ...     return one.price < other.price
        >>> ss.join("a", "b").on(ss.where(rising, "price")).last(100)
        join('a', 'b').on(where(rising, 'price')).last(100)
    """
    if not callable(function):
        raise SpecError(f"where(): {function!r} is no function; give one of two members")
    if not columns:
        raise SpecError(
            "where(): no column was named; name those that the function uses, as in "
            "where(function, 'price')"
        )
    return Where(PerStream(everywhere=tuple(_field(name) for name in columns)), function)


def parted(said: tuple[object, ...]) -> tuple[tuple[object, ...], PairCondition | None]:
    """The arguments of `.on` that name columns, and the condition among them, if there is one."""
    conditions = [one for one in said if isinstance(one, PairCondition)]
    if len(conditions) > 1:
        raise SpecError(
            f"{_METHOD}: {conditions[0]} and {conditions[1]} were both given; give one such "
            "condition, which may be a where() with a function of several columns"
        )
    columns = tuple(one for one in said if not isinstance(one, PairCondition))
    return columns, conditions[0] if conditions else None


def _compared(said: object, method: str) -> PerStream[tuple[str, ...]]:
    if not isinstance(said, Mapping):
        return PerStream(everywhere=(column_name(said, f"{method}: the column"),))
    if not said:
        raise SpecError(f"{method}: the mapping for the column is empty; name one for each stream")
    named = [
        (str(stream), (column_name(name, f"{method}: the column of stream {stream!r}"),))
        for stream, name in said.items()
    ]
    return PerStream(named=tuple(sorted(named)))


def _field(said: object) -> str:
    name = column_name(said, "where(): the column")
    if not name.isidentifier():
        raise SpecError(
            f"where(): the column {name!r} cannot be a field of a member; rename it to a word"
        )
    return name


def _number(said: object, what: str) -> float:
    number = real(said)
    if number is None or not abs(number) < float("inf"):
        raise SpecError(f"{what} is {said!r}; give a finite number")
    return number


def _code_of(function: Any) -> tuple[str, ...]:
    plain = getattr(function, "py_func", function)
    code = getattr(plain, "__code__", None)
    if code is None:
        return (repr(function),)
    held = [cell.cell_contents for cell in plain.__closure__ or ()]
    known = [plain.__globals__.get(name) for name in code.co_names]
    terms = (code.co_consts, code.co_names, plain.__defaults__, held, known)
    return (code.co_code.hex(), *map(repr, terms))


def _said(columns: PerStream[tuple[str, ...]]) -> str:
    if columns.everywhere is not None:
        return repr(columns.everywhere[0])
    return repr({stream: names[0] for stream, names in columns.named})
