"""The numbers of `TablePreprocessor.matrix` for one chunk of a large table after another, much faster.

Numbers are read at once. Of a column of categories, skrub encodes each value once, and later rows with it get
a copy. Tables with dates or free text go through skrub row by row, as ever.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from tailwise.tables.columns import is_number
from tailwise.tables.encode import LARGEST, TablePreprocessor, as_matrix

if TYPE_CHECKING:
    import pandas as pd

MAX_KNOWN = 10_000
"""Values of a column whose codes are kept."""


class QuickEncoder:
    """Encodes chunks of a table as a fitted `TablePreprocessor` does."""

    def __init__(self, preprocessor: TablePreprocessor) -> None:
        self.preprocessor = preprocessor
        self.numbers = {name: own[0] for name, own in preprocessor.made_of("numeric").items() if own}
        self.categories = preprocessor.made_of("low_cardinality")
        self.known: dict[str, dict[Any, NDArray[np.float64]]] = {name: {} for name in self.categories}
        self.simple = not preprocessor.made_of("datetime", "high_cardinality")

    def matrix(self, x: pd.DataFrame) -> NDArray[np.float64]:
        """Return rows as numbers, without warnings: categories encoded, NaN where missing. (N, F)"""
        if not self.preprocessor.encoders:
            return as_matrix(x)
        if len(x) == 0:
            return np.empty((0, len(self.preprocessor.numeric.center)))
        if not self.simple or not all(is_number(x[name].dtype) for name in self.numbers):
            return self.preprocessor.encoded(self.preprocessor.plain(x))
        out = np.zeros((len(x), len(self.preprocessor.numeric.center)))
        values = as_matrix(x[list(self.numbers)])
        # skrub computes in float32.
        out[:, list(self.numbers.values())] = np.clip(values, -LARGEST, LARGEST).astype(np.float32)
        for name, own in self.categories.items():
            out[:, own] = self._category(x, name, own)
        return out

    def _category(self, x: pd.DataFrame, name: str, places: list[int]) -> NDArray[np.float64]:
        import pandas as pd

        codes, values = x[name].factorize(use_na_sentinel=False)
        known = self.known[name]
        cells: list[Any] = values.tolist()
        keys = [None if pd.isna(cell) else cell for cell in cells]
        new = [k for k, key in enumerate(keys) if key not in known]
        if new:
            if len(known) + len(new) > MAX_KNOWN:
                known.clear()
                new = list(range(len(keys)))
            first = np.unique(codes, return_index=True)[1][new]
            made = self.preprocessor.encoded(self.preprocessor.plain(x.iloc[first]))[:, places]
            known.update(zip((keys[k] for k in new), made, strict=True))
        return np.asarray(np.stack([known[key] for key in keys])[codes])
