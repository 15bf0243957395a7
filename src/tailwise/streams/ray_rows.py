"""Rows of a `ray.data.Dataset` as a stream. Ray itself is not imported here: a data set brings it along."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any

from tailwise.streams.parquet_rows import CHUNK_ROWS, as_frame, column_kinds, plain_schema
from tailwise.streams.row_stream import SOURCE, Shard, checked_names
from tailwise.tables.read import TableError

if TYPE_CHECKING:
    import pandas as pd

SOURCE_NAME = "the Ray data set"


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
            raise TableError(f"{SOURCE_NAME} has no rows: there is nothing to read")
        self._dataset = dataset
        self._splits: list[Any] | None = None
        self.columns = column_kinds(_arrow_schema(schema, dataset))

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
        names = checked_names(columns, self.columns)
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

        chunk = as_frame(table, plain_schema(table.schema), SOURCE_NAME)
        hashed = [name for name, kind in self.columns.items() if kind != "other"]
        numbers = pd.util.hash_pandas_object(chunk[hashed], index=False).to_numpy()
        chunk = chunk[names]
        chunk.index = pd.Index(numbers)
        chunk.attrs = {SOURCE: SOURCE_NAME}
        return chunk


def _arrow_schema(schema: Any, dataset: Any) -> Any:
    """The types of the columns; those of pandas blocks are read off some rows."""
    import pyarrow as pa

    if isinstance(schema.base_schema, pa.Schema):
        return schema.base_schema
    return pa.Schema.from_pandas(dataset.limit(1000).to_pandas(), preserve_index=False)
