"""Write tables on disk: CSV, tab-separated or Parquet."""

from __future__ import annotations

import gzip
import io
import sys
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tailwise.tables.read import STANDARD, TableError
from tailwise.writing import write_atomically

if TYPE_CHECKING:
    import pandas as pd

_WRITTEN = ("csv", "tsv", "txt", "parquet", "pq")


def check_table_name(path: Path) -> None:
    """Raise an error if the name does not end in a format that `write_table` knows."""
    ending = path.name.lower().removesuffix(".gz").rpartition(".")[2] if "." in path.name else "csv"
    if ending not in _WRITTEN:
        raise TableError(f"cannot write {path} as a table: use .csv, .csv.gz, .tsv or .parquet")


def write_table(table: pd.DataFrame, path: str | Path) -> None:
    """Write CSV (``.csv``, ``.csv.gz``), tab-separated (``.tsv``) or Parquet; ``-`` is standard output."""
    write_chunks([table], path)


def write_chunks(chunks: Iterable[pd.DataFrame], path: str | Path) -> int:
    """Write tables one after another to one file, as `write_table` does; return the number of rows.

    The file appears when all of them are written. Parquet takes the types of the columns from the first.
    """
    ending, count = "".join(Path(path).suffixes[-2:]).lower(), 0

    def counted() -> Iterator[pd.DataFrame]:
        nonlocal count
        for chunk in chunks:
            count += len(chunk)
            yield chunk

    if str(path) == STANDARD:
        _write_text(counted(), sys.stdout, ",")
        sys.stdout.flush()
    elif ending.endswith((".parquet", ".pq")):
        write_atomically(Path(path), lambda part: _write_parquet(counted(), part))
    else:
        delimiter = "\t" if ".tsv" in ending else ","
        write_atomically(Path(path), lambda part: _write_file(counted(), part, ending, delimiter))
    return count


def _write_file(chunks: Iterable[pd.DataFrame], part: Path, ending: str, delimiter: str) -> None:
    with ExitStack() as opened:
        file: Any = opened.enter_context(part.open("wb"))
        if ending.endswith(".gz"):
            file = opened.enter_context(gzip.GzipFile(filename="", mode="wb", fileobj=file, mtime=0))
        text = opened.enter_context(io.TextIOWrapper(file, encoding="utf-8", newline=""))
        _write_text(chunks, text, delimiter)


def _write_text(chunks: Iterable[pd.DataFrame], file: Any, delimiter: str) -> None:
    for number, chunk in enumerate(chunks):
        chunk.to_csv(file, index=False, sep=delimiter, lineterminator="\n", header=number == 0)


def _write_parquet(chunks: Iterable[pd.DataFrame], part: Path) -> None:
    try:
        import pyarrow as pa
        import pyarrow.parquet as pq
    except ImportError:
        raise TableError("writing Parquet needs pyarrow: pip install 'tailwise[big]'") from None
    with ExitStack() as opened:
        writer = None
        for chunk in chunks:
            if writer is None:
                schema = pa.Schema.from_pandas(chunk, preserve_index=False)
                empty = [
                    field.with_type(pa.string()) if pa.types.is_null(field.type) else field
                    for field in schema
                ]
                schema = pa.schema(empty, schema.metadata)
                writer = opened.enter_context(pq.ParquetWriter(part, schema))
            writer.write_table(pa.Table.from_pandas(chunk, schema=schema, preserve_index=False))
