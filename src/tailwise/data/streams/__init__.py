"""Tables larger than memory: rows that come in chunks, as often as they are asked for.

- `row_stream`: what a stream of rows is, and streams of tables that the user has or makes
- `parquet_rows`: Parquet files, read by row group
"""

from tailwise.data.streams.row_stream import FrameRows, RowStream, as_row_stream

__all__ = ["FrameRows", "RowStream", "as_row_stream"]
