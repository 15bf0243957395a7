"""The data room's public door: a bundled table, streams of rows, and splits."""

from tailwise.streams import FrameRows, ParquetRows, RowStream, as_row_stream
from tailwise.tables.bundled import load_abalone
from tailwise.tables.split import Split, label_holdout, pooled_split

__all__ = [
    "FrameRows",
    "ParquetRows",
    "RowStream",
    "Split",
    "as_row_stream",
    "label_holdout",
    "load_abalone",
    "pooled_split",
]
