"""Tables larger than memory: rows that come in chunks, as often as they are asked for.

- `row_stream`: what a stream of rows is, streams of tables in memory, and batches of mixed rows
- `parquet_rows`: Parquet files, read by row group
- `ray_rows`: a data set of Ray Data
- `survey`: the two passes over a stream before training, and rows that are held out, told by their numbers
"""

from tailwise.streams.parquet_rows import ParquetRows
from tailwise.streams.row_stream import FrameRows, RowStream, as_row_stream

__all__ = ["FrameRows", "ParquetRows", "RowStream", "as_row_stream"]
