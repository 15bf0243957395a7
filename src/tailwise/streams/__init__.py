"""Tables larger than memory: rows that come in chunks, as often as they are asked for.

- `sources`: what a stream of rows is; tables in memory, Parquet files, and data sets of Ray
- `survey`: the passes over a stream before training, rows that are held out, and batches of mixed rows
"""

from tailwise.streams.sources import FrameRows, ParquetRows, RowStream, as_row_stream

__all__ = ["FrameRows", "ParquetRows", "RowStream", "as_row_stream"]
