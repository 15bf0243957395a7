"""Rows of a table that come in chunks: of tables in memory, of Parquet files, and of a data set of Ray."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, runtime_checkable

import numpy as np

from tailwise.lookup import check_name
from tailwise.tables.inputs import as_pandas, refuse_repeated
from tailwise.tables.read import TableError

if TYPE_CHECKING:
    import pandas as pd

CHUNK_ROWS = 65_536
"""Rows of a chunk, at most."""
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
        return RayRows(rows)
    paths = rows if isinstance(rows, (list, tuple)) and rows else [rows]
    return ParquetRows(rows) if all(isinstance(p, (str, PathLike)) for p in paths) else FrameRows(rows)


def where(chunk: pd.DataFrame, place: int) -> str:
    """Return in words where a row of a chunk comes from, to begin an error with."""
    if SOURCE in chunk.attrs:
        return f"{chunk.attrs[SOURCE]}, row {chunk.index[place] - chunk.attrs.get(FIRST, 0)}"
    return f"row {chunk.index[place]}"


def _numbered(chunk: pd.DataFrame, start: int, source: str, first: int) -> pd.DataFrame:
    """Give the rows of a chunk their numbers from `start` on, and the chunk its source."""
    import pandas as pd

    chunk = chunk.set_axis(pd.RangeIndex(start, start + len(chunk)), axis=0)
    chunk.attrs = {SOURCE: source, FIRST: first}
    return chunk


def _checked_names(columns: Sequence[str] | None, kinds: Mapping[str, str]) -> list[str]:
    """Return the names of the columns asked for; an unknown one is an error."""
    for name in columns or ():
        check_name("column", name, list(kinds))
    return list(kinds) if columns is None else list(columns)


def _compare_columns(kinds: Mapping[str, str], expected: Mapping[str, str], part: str, first: str) -> None:
    """Raise an error if a part of a stream has other columns than its first part, or of another kind.

    The order may differ. A column whose kind is ``"empty"`` fits any other.
    """
    for name in [*expected, *kinds]:
        pair = kinds.get(name, "missing"), expected.get(name, "missing")
        if pair[0] != pair[1] and ("missing" in pair or "empty" not in pair):
            raise TableError(
                f"{part}: column {name!r} is {pair[0]}, but in {first} it is {pair[1]}: write it in one way"
            )


# -- tables in memory ------------------------------------------------------------------------------


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

    columns: Mapping[str, str]

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
        self.columns = _kinds(_as_pandas(first))

    def _each(self) -> Iterable[Any]:
        return self._tables() if callable(self._tables) else self._tables

    def chunks(
        self, columns: Sequence[str] | None = None, *, shard: Shard = (0, 1), seed: int | None = None
    ) -> Iterator[pd.DataFrame]:
        """Return an iterator over all rows of a shard."""
        names = _checked_names(columns, self.columns)
        tables = self._with_starts()
        if seed is not None and not callable(self._tables):
            listed = list(tables)
            tables = (listed[k] for k in np.random.default_rng(seed).permutation(len(listed)))
        return (self._chunk(*table, names) for table in islice(tables, shard[0], None, shard[1]))

    def _with_starts(self) -> Iterator[tuple[Any, int, int]]:
        """Yield each table, its number and the number of its first row."""
        start = 0
        for number, table in enumerate(self._each()):
            yield table, number, start
            start += len(table)

    def _chunk(self, rows: Any, number: int, start: int, names: list[str]) -> pd.DataFrame:
        import pandas as pd

        table, source = _as_pandas(rows), f"table {number} of the stream"
        _compare_columns(_kinds(table), self.columns, source, "the first one")
        chunk = table[names]
        for name in names:  # categories may differ from table to table
            if isinstance(kind := chunk[name].dtype, pd.CategoricalDtype):
                chunk = chunk.astype({name: kind.categories.dtype})
        return _numbered(chunk, start, source, start)


def _as_pandas(table: Any) -> pd.DataFrame:
    import pandas as pd

    table = as_pandas(table)
    if not isinstance(table, pd.DataFrame):
        raise TypeError(f"a stream holds DataFrames of pandas or polars, not {type(table).__name__}")
    return table.rename(columns=str)


def _kinds(table: pd.DataFrame) -> dict[str, str]:
    refuse_repeated(list(table.columns), "column")
    return {name: _kind(table[name]) for name in table.columns}


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


# -- Parquet files, read by row group with pyarrow -------------------------------------------------

_BUFFER = 1 << 20  # bytes of a column that are read at a time


class _RowGroup(NamedTuple):
    """A row group: its rows, how many come before it in the stream, and how many its file has."""

    path: str
    number: int
    rows: int
    start: int
    file_rows: int
    values: Mapping[str, Any]
    """Values of columns that the names of folders say, the same for all rows."""


class ParquetRows:
    """A stream of the rows of Parquet files: one file, a list of files, or a folder and its folders.

    Only a chunk of a row group is in memory at a time, however large the row group is. With a seed, row
    groups come in random order. Parts for several processes are whole row groups; with fewer row groups than
    parts, ranges of rows. Names in a folder that begin with ``_`` or ``.`` are left out. Folders such as
    ``year=2024`` become a column. A file with other columns than the first one is an error.
    """

    columns: Mapping[str, str]

    def __init__(
        self, source: str | PathLike[str] | Sequence[str | PathLike[str]], *, chunk_rows: int = CHUNK_ROWS
    ) -> None:
        if chunk_rows < 1:
            raise ValueError(f"chunk_rows must be positive, got {chunk_rows}")
        self.chunk_rows = chunk_rows
        base = None
        if isinstance(source, (str, PathLike)):
            path = Path(source)
            self.name, self.files = str(path), parquet_files(path)
            base = path if path.is_dir() else None
        else:
            self.name, self.files = f"{len(source)} Parquet files", [Path(path) for path in source]
            if not self.files:
                raise TableError("the list of Parquet files is empty: there is nothing to read")
        self._place = Path.cwd()  # Ray's workers are in another folder
        if importlib.util.find_spec("pyarrow") is None:
            raise TableError(f"reading {self.name} needs pyarrow: pip install 'tailwise[big]'")
        self._open(base)

    def _open(self, base: Path | None) -> None:
        import pyarrow as pa
        import pyarrow.dataset as ds

        schema: Any = None
        self._groups: list[_RowGroup] = []
        start = 0
        for path in self.files:
            try:
                part = ds.dataset(
                    str(path),
                    format="parquet",
                    partitioning=None if base is None else "hive",
                    partition_base_dir=None if base is None else str(base),
                )
                kinds = _arrow_kinds(part.schema)
                (fragment,) = part.get_fragments()
                sizes = [group.num_rows for group in fragment.row_groups]
                values = ds.get_partition_keys(fragment.partition_expression)
            except (pa.ArrowException, OSError) as error:
                raise TableError(_damaged(str(path), error)) from None
            own = _plain_schema(part.schema)
            if schema is None:
                schema, self.columns = own, kinds
            _compare_columns(kinds, self.columns, str(path), str(self.files[0]))
            schema = pa.unify_schemas([schema, own], promote_options="permissive")
            self.columns = _arrow_kinds(schema)
            for number, rows in enumerate(sizes):
                if rows:
                    self._groups.append(_RowGroup(str(path), number, rows, start, sum(sizes), values))
                start += rows
        self.rows = start
        """Number of rows of the whole stream."""
        if not self._groups:
            raise TableError(f"{self.name} has columns but no rows")
        self._schema = schema

    def chunks(
        self, columns: Sequence[str] | None = None, *, shard: Shard = (0, 1), seed: int | None = None
    ) -> Iterator[pd.DataFrame]:
        """Return an iterator over all rows of a shard."""
        names = _checked_names(columns, self.columns)
        groups = self._groups
        if seed is not None:
            groups = [groups[k] for k in np.random.default_rng(seed).permutation(len(groups))]
        if len(groups) >= shard[1]:
            first, end, groups = 0, self.rows, groups[shard[0] :: shard[1]]
        else:
            first, end = (self.rows * k // shard[1] for k in (shard[0], shard[0] + 1))
            groups = [group for group in groups if group.start < end and group.start + group.rows > first]
        return (chunk for group in groups for chunk in self._read(group, names, first, end))

    def _read(self, group: _RowGroup, names: list[str], first: int, end: int) -> Iterator[pd.DataFrame]:
        """Yield the chunks of a row group, without rows before `first` and from `end` on."""
        import pyarrow as pa
        import pyarrow.parquet as pq

        source = f"{group.path}, row group {group.number}"
        first, end = first - group.start, end - group.start
        stored = [name for name in names if name not in group.values]
        place = 0
        try:
            path = self._place / group.path
            with pq.ParquetFile(path, buffer_size=_BUFFER, pre_buffer=False) as file:
                if file.metadata.num_rows != group.file_rows:
                    raise TableError(f"{source} has changed since it was opened: start again")
                for batch in file.iter_batches(
                    self.chunk_rows, row_groups=[group.number], columns=stored, use_threads=False
                ):
                    low, high = max(first - place, 0), min(end - place, batch.num_rows)
                    if low < high:
                        table = pa.Table.from_batches([batch.slice(low, high - low)])
                        for name, value in group.values.items():
                            table = table.append_column(name, [pa.repeat(value, len(table))])
                        chunk = _as_frame(table.select(names), self._schema, source)
                        yield _numbered(chunk, group.start + place + low, source, group.start)
                    place += batch.num_rows
        except (pa.ArrowException, OSError) as error:
            raise TableError(_damaged(source, error)) from None


def parquet_files(path: Path) -> list[Path]:
    """Return a Parquet file itself, or the Parquet files of a folder and its folders, sorted by name."""
    if not path.exists():
        raise TableError(f"{path} does not exist")
    if not path.is_dir():
        return [path]
    paths = sorted(p for p in path.rglob("*") if p.suffix in (".parquet", ".pq") and p.is_file())
    shown = [p for p in paths if not any(part[0] in "_." for part in p.relative_to(path).parts)]
    if not shown:
        raise TableError(
            f"{path} is a folder without a Parquet file: name one with files that end in .parquet"
        )
    return shown


def _damaged(source: str, error: Exception) -> str:
    reason = (str(error).splitlines() or [type(error).__name__])[0]
    return f"{source} cannot be read as Parquet ({reason:.200}): copy or write it again"


def _arrow_kinds(schema: Any) -> dict[str, str]:
    """Return the kind of each column of an Arrow schema, as `RowStream.columns` has it.

    pandas writes row numbers without a name as a column, which is left out.
    """
    return {f.name: _arrow_kind(f.type) for f in schema if not f.name.startswith("__index_level_")}


def _arrow_kind(type_: Any) -> str:
    from pyarrow import types

    type_ = type_.value_type if types.is_dictionary(type_) else type_
    if types.is_boolean(type_):
        return "boolean"
    if types.is_integer(type_) or types.is_floating(type_) or types.is_decimal(type_):
        return "number"
    if types.is_timestamp(type_) or types.is_date(type_):
        return "date"
    if types.is_null(type_):
        return "empty"
    texts = ("string", "large_string", "string_view", "binary", "large_binary")
    return "text" if str(type_) in texts else "other"


def _plain_schema(schema: Any) -> Any:
    """Return types that pandas has: decimals as floats, dates as time stamps, bytes as texts.

    A dictionary differs from chunk to chunk, so it becomes the texts or numbers that it stands for.
    """
    import pyarrow as pa
    from pyarrow import types

    def plain(type_: Any) -> Any:
        type_ = type_.value_type if types.is_dictionary(type_) else type_
        if types.is_decimal(type_) or types.is_float16(type_):
            return pa.float64()
        if types.is_date(type_):
            return pa.timestamp("ms")
        return pa.string() if _arrow_kind(type_) == "text" else type_

    return pa.schema([(field.name, plain(field.type)) for field in schema])


def _as_frame(table: Any, schema: Any, source: str) -> pd.DataFrame:
    """Return an Arrow table as a DataFrame, in the types of a schema; `source` says where it comes from."""
    import pyarrow as pa

    for place, name in enumerate(table.column_names):
        column, kind = table.column(place), schema.field(name).type
        if pa.types.is_boolean(column.type) and (column.null_count or not pa.types.is_boolean(kind)):
            column, kind = column.cast(pa.int8()), pa.float64()  # there is no direct cast
        try:
            table = table.set_column(place, name, column.cast(kind))
        except pa.ArrowInvalid:
            raise TableError(
                f"{source}: column {name!r} holds bytes that are not text: leave the column out, or write it "
                "as text or numbers"
            ) from None
    frame: pd.DataFrame = table.to_pandas(ignore_metadata=True)
    return frame


# -- a data set of Ray, which brings Ray along -----------------------------------------------------


_RAY = "the Ray data set"


class RayRows:
    """A stream of the rows of a `ray.data.Dataset`.

    Rows keep the order of the data set's blocks, so that every pass gives the same numbers. A row is known by
    a hash of its values: equal rows are held out together. A seed changes nothing here; the training loop
    mixes rows in a buffer.

    Parts for several processes are whole blocks, in turn.
    `divided` lets Ray hand them out while all parts are read at the same time (`streaming_split`); without it
    every part reads all blocks and passes over those of the others.
    """

    columns: Mapping[str, str]

    def __init__(self, dataset: Any) -> None:
        dataset.context.execution_options.preserve_order = True
        schema = dataset.schema()
        if schema is None or not schema.names:
            raise TableError(f"{_RAY} has no rows: there is nothing to read")
        self._dataset = dataset
        self._splits: list[Any] | None = None
        self.columns = _arrow_kinds(_arrow_schema(schema, dataset))

    def divided(self, parts: int) -> RayRows:
        """Return the same stream, whose parts are read at the same time, each by one process."""
        other = object.__new__(RayRows)
        other.columns, other._dataset = self.columns, None
        other._splits = list(self._dataset.streaming_split(parts, equal=False))
        return other

    def chunks(
        self, columns: Sequence[str] | None = None, *, shard: Shard = (0, 1), seed: int | None = None
    ) -> Iterator[pd.DataFrame]:
        """Return an iterator over all rows of a shard."""
        names = _checked_names(columns, self.columns)
        return (self._chunk(table, names) for table in self._tables(*shard))

    def _tables(self, part: int, parts: int) -> Iterator[Any]:
        """Yield the rows of a part as Arrow tables."""
        if self._splits is not None:
            if len(self._splits) != parts:
                raise ValueError(f"the rows are divided into {len(self._splits)} parts, not {parts}")
            yield from self._splits[part].iter_batches(batch_size=CHUNK_ROWS, batch_format="pyarrow")
        elif parts == 1:
            yield from self._dataset.iter_batches(batch_size=CHUNK_ROWS, batch_format="pyarrow")
        else:
            tables = self._dataset.iter_batches(batch_size=None, batch_format="pyarrow")
            yield from islice(tables, part, None, parts)

    def _chunk(self, table: Any, names: list[str]) -> pd.DataFrame:
        import pandas as pd

        chunk = _as_frame(table, _plain_schema(table.schema), _RAY)
        hashed = [name for name, kind in self.columns.items() if kind != "other"]
        numbers = pd.util.hash_pandas_object(chunk[hashed], index=False).to_numpy()
        chunk = chunk[names]
        chunk.index = pd.Index(numbers)
        chunk.attrs = {SOURCE: _RAY}
        return chunk


def _arrow_schema(schema: Any, dataset: Any) -> Any:
    """The types of the columns; those of pandas blocks are read off some rows."""
    import pyarrow as pa

    if isinstance(schema.base_schema, pa.Schema):
        return schema.base_schema
    return pa.Schema.from_pandas(dataset.limit(1000).to_pandas(), preserve_index=False)
