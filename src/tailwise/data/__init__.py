"""The data room's public door: a bundled table, streams of rows, and splits."""

from __future__ import annotations

from importlib.resources import as_file, files
from typing import TYPE_CHECKING

from tailwise.streams import FrameRows, ParquetRows, RowStream, as_row_stream
from tailwise.tables.rows import Split, label_holdout, pooled_split

if TYPE_CHECKING:
    import pandas as pd

__all__ = [
    "FrameRows", "ParquetRows", "RowStream", "Split", "as_row_stream", "label_holdout", "load_abalone",
    "pooled_split",
]  # fmt: skip


def load_abalone() -> pd.DataFrame:
    """Return the abalone table: 4,177 rows, eight features and the target ``Rings``.

    Few abalones are very young or very old, so ``Rings`` (1 to 29) is imbalanced on both sides.
    ``Sex`` is M, F or I (infant); lengths are in units of 200 mm and weights in units of 200 g.

    Nash, Sellers, Talbot, Cawthorn and Ford (1994), UCI Machine Learning Repository,
    doi 10.24432/C55C7W, licensed under CC BY 4.0.

    >>> table = load_abalone()
    >>> table.shape
    (4177, 9)
    >>> table["Rings"].min(), table["Rings"].max()
    (np.int64(1), np.int64(29))
    """
    import pandas as pd

    with as_file(files("tailwise.data") / "abalone.csv.gz") as path:
        return pd.read_csv(path)
