"""Tables larger than memory: rows that come in chunks, as often as they are asked for.

- `row_stream`: what a stream of rows is, and streams of tables that the user has or makes
- `parquet_rows`: Parquet files, read by row group
- `ray_rows`: a data set of Ray Data
- `sampling`: rows that are held out, told by their numbers
- `survey`: the two passes over a stream before training, a sample of rows and labels in little memory
- `mixing`: batches of rows in random order, from a buffer of bounded size
"""

from tailwise.streams.parquet_rows import ParquetRows
from tailwise.streams.row_stream import FrameRows, RowStream, as_row_stream

__all__ = ["FrameRows", "ParquetRows", "RowStream", "as_row_stream"]
