"""Shuffling a column shows how much it matters, for the error and for the uncertainty."""

import numpy as np
import pytest

from tailwise import TailRegressor
from tailwise.core.label_prior import rarest
from tailwise.explanations import importance
from tests.explanations.conftest import Rows


def test_columns_that_matter_come_first(model: TailRegressor, rows: Rows) -> None:
    table = importance(model, *rows, repeats=3)
    assert list(table.columns) == [
        "measure",
        "labels",
        "column",
        "importance",
        "spread",
        "reference",
        "rows",
    ]
    assert len(table) == 2 * 2 * 5
    error = table[(table["measure"] == "error") & (table["labels"] == "all")].set_index("column")
    assert error.index[0] == "size" and set(error.index[:3]) == {"size", "kind", "text"}
    assert error.loc["size", "importance"] > 5 * error.loc["size", "spread"] > 0
    assert abs(error.loc["junk", "importance"]) < 0.1 * error.loc["kind", "importance"]
    assert error["reference"].iloc[0] == pytest.approx(np.abs(model.predict(rows[0]) - rows[1]).mean())
    width = table[table["measure"] == "width"]
    assert (width["importance"] >= 0).all() and width["column"].iloc[0] == "size"


def test_rare_labels_have_figures_of_their_own(model: TailRegressor, rows: Rows) -> None:
    table = importance(model, *rows, repeats=2, measures=["error"]).set_index(["labels", "column"])
    rare = rarest(rows[1], model.calibrators_[0].density)
    assert (table.loc["rare", "rows"] == rare.sum()).all() and rare.sum() == 18
    order = np.random.default_rng(0).permutation(len(rare))  # the first shuffle
    shuffled = rows[0].assign(size=rows[0]["size"].to_numpy()[order])
    first = np.abs(model.predict(shuffled) - rows[1]) - np.abs(model.predict(rows[0]) - rows[1])
    mean, spread = table.loc[("rare", "size"), ["importance", "spread"]]
    assert abs(first[rare].mean() - mean) == pytest.approx(spread / np.sqrt(2))


def test_scores_of_the_whole_distribution_and_targets(
    model: TailRegressor, rows: Rows, twins: tuple[TailRegressor, np.ndarray]
) -> None:
    table = importance(model, *rows, repeats=2, max_rows=60, measures=["crps", "std"])
    assert table["column"].iloc[0] == "size" and table["rows"].iloc[0] == 60
    two, x = twins
    found = importance(two, x, np.exp(x[:, 1]), target=1, repeats=2, measures=["error"])
    assert found["column"].iloc[0] == "1"


def test_mistakes_are_named(model: TailRegressor, rows: Rows) -> None:
    with pytest.raises(ValueError, match="unknown measure 'eror'; did you mean 'error'"):
        importance(model, *rows, measures=["eror"])
    with pytest.raises(ValueError, match="repeats must be at least 2"):
        importance(model, *rows, repeats=1)
    with pytest.raises(ValueError, match="X has 120 rows and y has 5"):
        importance(model, rows[0], rows[1][:5])
