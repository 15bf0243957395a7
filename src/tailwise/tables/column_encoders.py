"""How each column of a table with text, categories or dates becomes numbers.

skrub chooses and fits the transformers of each column. They are kept column by column, so that a row passes
through those of its columns and through nothing else.
"""

from __future__ import annotations

import importlib
import os
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

COMPONENTS = 30
"""A column of free text becomes so many numbers at most."""
ROUNDING = 1e-5
"""A component of texts whose singular value is less than this share of the largest is rounding of float32."""


def import_skrub() -> Any:
    """Import skrub, which makes a folder in the home folder, or where it cannot in that of temporary files.

    Users of servers and containers often have no home folder.
    """
    try:
        return importlib.import_module("skrub")
    except OSError:
        os.environ["SKB_DATA_DIRECTORY"] = tempfile.gettempdir()
        return importlib.import_module("skrub")


@dataclass(frozen=True, eq=False)
class ColumnEncoder:
    """The fitted transformers of one column, one after another."""

    name: str
    kind: str
    """skrub's: ``numeric``, ``datetime``, ``low_cardinality`` (categories), ``high_cardinality`` (text) or
    ``dropped``, of a column without values."""
    transformers: tuple[Any, ...]
    outputs: tuple[str, ...]
    """Names of the numbers that the column becomes."""
    seen_once: float = 0.0
    """Share of the training rows whose category occurred once."""

    @property
    def steps(self) -> dict[str, Any]:
        """The transformers by the names of their classes."""
        return {type(step).__name__: step for step in self.transformers}

    def encode(self, column: Any) -> Any:
        """Return a table with the numbers of a column of pandas or polars, in float32. (N,) -> (N, P)"""
        for step in self.transformers:
            alone = hasattr(step, "__single_column_transformer__")
            column = step.transform(column if alone or hasattr(column, "columns") else column.to_frame())
        return column if hasattr(column, "columns") else column.to_frame()


def fit_encoders(x: Any, categories: int, components: int) -> tuple[ColumnEncoder, ...]:
    """Fit an encoder for each column of a DataFrame.

    Text with fewer than `categories` different values counts as categories. Other text becomes `components`
    numbers.
    """
    from sklearn.preprocessing import OneHotEncoder

    skrub = import_skrub()
    # skrub's default would warn of every new category; `TablePreprocessor.matrix` warns of frequent ones.
    known = OneHotEncoder(dtype=np.float32, handle_unknown="ignore", sparse_output=False)
    # The projection of texts is random: with a seed, the same table gives the same features.
    texts = skrub.StringEncoder(n_components=components, random_state=0)
    fitted = skrub.TableVectorizer(
        cardinality_threshold=categories, low_cardinality=known, high_cardinality=texts
    ).fit(x)
    return tuple(_encoder(fitted, name) for name in fitted.all_processing_steps_)


def _encoder(fitted: Any, name: str) -> ColumnEncoder:
    kind = fitted.column_to_kind_.get(name)
    if kind is None:  # a column without values
        return ColumnEncoder(name, "dropped", (), ())
    # The last step is a mapping: it makes float32 of numbers that are that already.
    steps = tuple(step for step in fitted.all_processing_steps_[name] if not isinstance(step, Mapping))
    for step in steps:
        _drop_rounding(step)
    return ColumnEncoder(name, kind, steps, tuple(fitted.input_to_outputs_[name]))


def _drop_rounding(step: Any) -> None:
    """Set to 0 the components of texts that contain nothing but rounding.

    Texts of fewer than `COMPONENTS` different words have such components. Scaled, they would be noise
    that differs from one machine to another.
    """
    if hasattr(step, "tsvd_"):
        size = step.tsvd_.singular_values_
        step.tsvd_.components_[size < ROUNDING * size.max()] = 0.0
