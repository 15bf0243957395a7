"""Parquet files as a stream of rows, read by row group with pyarrow."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator, Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from tailwise.streams.row_stream import FIRST, SOURCE, Shard, checked_names, compare_columns
from tailwise.tables.read import TableError

if TYPE_CHECKING:
    import pandas as pd

CHUNK_ROWS = 65_536
"""Rows of a chunk, at most."""
ENDINGS = (".parquet", ".pq")
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
                kinds = column_kinds(part.schema)
                (fragment,) = part.get_fragments()
                sizes = [group.num_rows for group in fragment.row_groups]
                values = ds.get_partition_keys(fragment.partition_expression)
            except (pa.ArrowException, OSError) as error:
                raise TableError(_damaged(str(path), error)) from None
            own = plain_schema(part.schema)
            if schema is None:
                schema, self.columns = own, kinds
            compare_columns(kinds, self.columns, str(path), str(self.files[0]))
            schema = pa.unify_schemas([schema, own], promote_options="permissive")
            self.columns = column_kinds(schema)
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
        names = checked_names(columns, self.columns)
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
        import pandas as pd
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
                        chunk = as_frame(table.select(names), self._schema, source)
                        begin = group.start + place + low
                        chunk.index = pd.RangeIndex(begin, begin + len(chunk))
                        chunk.attrs = {SOURCE: source, FIRST: group.start}
                        yield chunk
                    place += batch.num_rows
        except (pa.ArrowException, OSError) as error:
            raise TableError(_damaged(source, error)) from None


def parquet_files(path: Path) -> list[Path]:
    """Return a Parquet file itself, or the Parquet files of a folder and its folders, sorted by name."""
    if not path.exists():
        raise TableError(f"{path} does not exist")
    if not path.is_dir():
        return [path]
    paths = [p for ending in ENDINGS for p in path.rglob(f"*{ending}") if p.is_file()]
    hidden = ("_", ".")
    shown = [p for p in paths if not any(part.startswith(hidden) for part in p.relative_to(path).parts)]
    if not shown:
        raise TableError(
            f"{path} is a folder without a Parquet file: name one with files that end in .parquet"
        )
    return sorted(shown)


def _damaged(source: str, error: Exception) -> str:
    reason = (str(error).splitlines() or [type(error).__name__])[0]
    return f"{source} cannot be read as Parquet ({reason:.200}): copy or write it again"


def column_kinds(schema: Any) -> dict[str, str]:
    """Return the kind of each column of an Arrow schema, as `RowStream.columns` has it.

    pandas writes row numbers without a name as a column, which is left out.
    """
    return {f.name: _kind(f.type) for f in schema if not f.name.startswith("__index_level_")}


def _kind(type_: Any) -> str:
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


def plain_schema(schema: Any) -> Any:
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
        return pa.string() if _kind(type_) == "text" else type_

    return pa.schema([(field.name, plain(field.type)) for field in schema])


def as_frame(table: Any, schema: Any, source: str) -> pd.DataFrame:
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
