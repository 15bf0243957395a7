"""What a stream of rows is, and streams of tables that the user has or makes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice, pairwise
from os import PathLike
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

import numpy as np

from tailwise.lookup import check_name
from tailwise.tables.read import TableError

if TYPE_CHECKING:
    import pandas as pd

SOURCE, FIRST = "source", "first"
"""Names in the `attrs` of a chunk: where it comes from, and the number of the first row of that place."""
Shard = tuple[int, int]


@runtime_checkable
class RowStream(Protocol):
    """Rows of a table that come as DataFrames, one after another, as often as they are asked for.

    `columns` has the kind of each column by its name, in their order: ``"number"``, ``"boolean"``,
    ``"text"``, ``"date"``, ``"empty"`` (no row has a value) or ``"other"``.

    `chunks` returns an iterator over DataFrames that have `columns` (all of them by default). Every call
    starts again at the first row. The same arguments give the same chunks.

    - The index of a chunk identifies its rows: an integer for each row, which no other row has and which is
      the same in every pass, whatever the columns, the shard and the seed. The place of the row in the table
      will do, or a hash of its values.
    - ``shard=(k, n)`` returns part `k` of `n`. The parts of one seed have no row in common, and together they
      are all rows.
    - `seed` changes the order of the chunks, as well as the stream can. Without a seed, rows come in their
      own order.
    - ``chunk.attrs["source"]`` may say in words where a chunk comes from, such as a file and a row group, and
      ``chunk.attrs["first"]`` the number of the first row there. Errors name the place and the row in it.
    """

    @property
    def columns(self) -> Mapping[str, str]:
        """The kind of each column by its name."""

    def chunks(
        self, columns: Sequence[str] | None = None, *, shard: Shard = (0, 1), seed: int | None = None
    ) -> Iterator[pd.DataFrame]:
        """Return an iterator over all rows of a shard."""


def as_row_stream(rows: Any) -> RowStream:
    """Return rows as a stream.

    Takes a stream, the path of a Parquet file or of a folder of such files, a list of paths, a DataFrame, a
    list of DataFrames, a `ray.data.Dataset`, or a function without arguments that returns an iterable of
    DataFrames.
    """
    if isinstance(rows, RowStream):
        return rows
    if any(kind.__module__.startswith("ray.data") for kind in type(rows).__mro__):
        from tailwise.streams.ray_rows import RayRows

        return RayRows(rows)
    paths = rows if isinstance(rows, (list, tuple)) and rows else [rows]
    if all(isinstance(path, (str, PathLike)) for path in paths):
        from tailwise.streams.parquet_rows import ParquetRows

        return ParquetRows(rows)
    return FrameRows(rows)


class FrameRows:
    """A stream of DataFrames: a list of them, or what a function without arguments returns each time.

    With a seed, the tables of a list come in random order; those of a function keep their order. Parts for
    several processes are whole tables.

    >>> import pandas as pd
    >>> stream = FrameRows(lambda: (pd.DataFrame({"x": [k, k + 1]}) for k in range(0, 6, 2)))
    >>> stream.columns
    {'x': 'number'}
    >>> [chunk.x.to_list() for chunk in stream.chunks(shard=(1, 2))]
    [[2, 3]]
    """

    def __init__(self, tables: Sequence[Any] | Callable[[], Iterable[Any]] | Any) -> None:
        if hasattr(tables, "columns"):
            tables = [tables]
        if not callable(tables) and not isinstance(tables, Sequence):
            raise TypeError(
                f"rows are a {type(tables).__name__}, which may end after one pass: give a list of "
                "DataFrames, or a function that returns an iterable of them each time it is called"
            )
        self._tables = tables
        first = next(iter(self._each()), None)
        if first is None:
            raise TableError("the stream has no table: there is nothing to read")
        self.columns: Mapping[str, str] = _kinds(_as_pandas(first))

    def _each(self) -> Iterable[Any]:
        return self._tables() if callable(self._tables) else self._tables

    def chunks(
        self, columns: Sequence[str] | None = None, *, shard: Shard = (0, 1), seed: int | None = None
    ) -> Iterator[pd.DataFrame]:
        """Return an iterator over all rows of a shard."""
        names = checked_names(columns, self.columns)
        tables = self._numbered()
        if seed is not None and not callable(self._tables):
            listed = list(tables)
            tables = (listed[k] for k in np.random.default_rng(seed).permutation(len(listed)))
        return (self._chunk(*table, names) for table in islice(tables, shard[0], None, shard[1]))

    def _numbered(self) -> Iterator[tuple[Any, int, int]]:
        """Yield each table, its number and the number of its first row."""
        start = 0
        for number, table in enumerate(self._each()):
            yield table, number, start
            start += len(table)

    def _chunk(self, rows: Any, number: int, start: int, names: Sequence[str]) -> pd.DataFrame:
        import pandas as pd

        table = _as_pandas(rows)
        compare_columns(_kinds(table), self.columns, f"table {number} of the stream", "the first one")
        chunk = table[list(names)].set_axis(pd.RangeIndex(start, start + len(table)), axis=0)
        for name in names:
            # Categories may differ from table to table.
            if isinstance(chunk[name].dtype, pd.CategoricalDtype):
                chunk[name] = chunk[name].astype(chunk[name].cat.categories.dtype)
        chunk.attrs = {SOURCE: f"table {number} of the stream", FIRST: start}
        return chunk


def where(chunk: pd.DataFrame, place: int) -> str:
    """Return in words where a row of a chunk comes from, to begin an error with."""
    if SOURCE in chunk.attrs:
        return f"{chunk.attrs[SOURCE]}, row {chunk.index[place] - chunk.attrs.get(FIRST, 0)}"
    return f"row {chunk.index[place]}"


def checked_names(columns: Sequence[str] | None, kinds: Mapping[str, str]) -> list[str]:
    """Return the names of the columns asked for; an unknown one is an error."""
    for name in columns or ():
        check_name("column", name, list(kinds))
    return list(kinds) if columns is None else list(columns)


def compare_columns(kinds: Mapping[str, str], expected: Mapping[str, str], part: str, first: str) -> None:
    """Raise an error if a part of a stream has other columns than its first part, or of another kind.

    The order may differ. A column whose kind is ``"empty"`` fits any other.
    """
    for name in expected:
        if name not in kinds:
            raise TableError(f"{part} has no column {name!r}, but {first} has: give all the same columns")
    for name, kind in kinds.items():
        if name not in expected:
            raise TableError(f"{part} has a column {name!r}, but {first} has none: give all the same columns")
        if kind != expected[name] and "empty" not in (kind, expected[name]):
            raise TableError(
                f"{part}: column {name!r} is of kind {kind}, but in {first} of kind {expected[name]}: "
                "write it in one way"
            )


def _as_pandas(table: Any) -> pd.DataFrame:
    import pandas as pd

    table = table.to_pandas() if hasattr(table, "to_pandas") else table
    if not isinstance(table, pd.DataFrame):
        raise TypeError(f"a stream holds DataFrames of pandas or polars, not {type(table).__name__}")
    return table.rename(columns=str)


def _kinds(table: pd.DataFrame) -> dict[str, str]:
    names = table.columns.to_list()
    for name in names:
        if names.count(name) > 1:
            raise TableError(f"column name {name!r} occurs twice: rename one of them")
    return {name: _kind(table[name]) for name in names}


def _kind(column: pd.Series[Any]) -> str:
    from pandas.api.types import is_bool_dtype, is_datetime64_any_dtype, is_numeric_dtype

    if is_bool_dtype(column.dtype):
        return "boolean"
    if is_numeric_dtype(column.dtype) and column.dtype.kind != "c":
        return "number"
    if is_datetime64_any_dtype(column.dtype):
        return "date"
    if column.dtype == object and column.isna().all():
        return "empty"
    return "text" if column.dtype.kind == "O" or str(column.dtype).startswith("str") else "other"


# -- batches of rows, mixed in a buffer -----------------------------------------------------------

Part = tuple[Any, ...]
"""Arrays of the same length; None for a part that no row has."""


def mixed(parts: Iterable[Part], size: int, buffer: int = 0, seed: int | None = None) -> Iterator[Part]:
    """Yield batches of `size` rows; the last one or two may have fewer rows.

    With a seed, rows wait in a buffer of `buffer` rows, and each batch is a random part of it. Its place then
    goes to the next rows of the stream. Batches depend on the order of the rows, not on the parts that they
    come in.

    >>> [x.tolist() for (x,) in mixed([(np.arange(5),), (np.arange(5, 7),)], size=3)]
    [[0, 1, 2], [3, 4], [5, 6]]
    """
    blocks = _blocks(parts, size)
    if seed is None or buffer == 0:
        return blocks
    return _shuffled(blocks, size, max(buffer, size), np.random.default_rng([seed, 1]))


def _shuffled(blocks: Iterator[Part], size: int, buffer: int, rng: np.random.Generator) -> Iterator[Part]:
    held: list[Part] = []
    count = 0
    for block in blocks:  # until the buffer is full
        held.append(block)
        count += _rows(block)
        if count >= buffer:
            break
    if not held:
        return
    store = _joined(held)
    del held
    for block in blocks:
        places = rng.choice(count, _rows(block), replace=False)
        batch = _taken(store, places)
        for to, rows in zip(store, block, strict=True):
            if to is not None:
                to[places] = rows
        yield batch
    for places in np.array_split(rng.permutation(count), -(-count // size)):
        yield _taken(store, places)


def _blocks(parts: Iterable[Part], size: int) -> Iterator[Part]:
    """Yield blocks of `size` rows in order; a short last one shares its rows with the one before it."""
    waiting: list[Part] = []
    count = 0
    for part in parts:
        waiting.append(part)
        count += _rows(part)
        if count >= 2 * size:
            whole = _joined(waiting)
            passed = (count // size - 1) * size  # one block stays back
            for start in range(0, passed, size):
                yield _cut(whole, start, start + size)
            waiting, count = [_cut(whole, passed, count)], count - passed
    if count == 0:
        return
    whole, number = _joined(waiting), -(-count // size)
    ends = [count * k // number for k in range(number + 1)]
    if number * size - count < size / 2:  # long enough as it is
        ends = [min(k * size, count) for k in range(number + 1)]
    for start, end in pairwise(ends):
        yield _cut(whole, start, end)


def _rows(part: Part) -> int:
    return len(part[0])


def _joined(parts: list[Part]) -> Part:
    """Copies of the parts as one, which may be written to."""
    return tuple(None if pieces[0] is None else np.concatenate(pieces) for pieces in zip(*parts, strict=True))


def _cut(part: Part, start: int, end: int) -> Part:
    return tuple(None if array is None else array[start:end] for array in part)


def _taken(part: Part, places: Any) -> Part:
    return tuple(None if array is None else array[places] for array in part)
