"""Shuffling a column shows how much it matters, for the error and for the uncertainty."""

import numpy as np
import pandas as pd
import pytest

from tailwise import TailRegressor
from tailwise.explanations import importance
from tailwise.labels.prior import rarest
from tests.explanations.conftest import Array, Rows, linear


def test_columns_that_matter_come_first() -> None:
    rng = np.random.default_rng(0)
    table = pd.DataFrame(rng.normal(size=(200, 3)), columns=["little", "nothing", "much"])
    y = (4 * table["much"] + table["little"] + 0.1 * rng.normal(size=200)).to_numpy()
    found = importance(linear(table, y), table, y, repeats=3, measures=["error", "crps"])
    assert list(found.columns) == [
        "measure",
        "labels",
        "column",
        "importance",
        "spread",
        "reference",
        "rows",
    ]
    for measure in ("error", "crps"):
        much, little, nothing = found[(found["measure"] == measure) & (found["labels"] == "all")].itertuples()
        assert (much.column, little.column, nothing.column) == ("much", "little", "nothing")
        assert much.importance > 2 * little.importance > 10 * nothing.importance
        assert much.importance > 5 * much.spread > 0


def test_figures_are_those_of_shuffled_tables(model: TailRegressor, rows: Rows) -> None:
    table = importance(model, *rows, repeats=2).set_index(["measure", "labels", "column"])
    assert len(table) == 2 * 2 * 5
    rare = rarest(rows[1], model.calibrators_[0].labels.density)
    assert rare.sum() == 18

    def figures(X: pd.DataFrame) -> tuple[Array, Array]:
        lower, upper = model.predict_interval(X).T
        return np.abs(model.predict(X) - rows[1]), upper - lower

    rng = np.random.default_rng(0)
    orders = [rng.permutation(len(rare)) for _ in range(2)]
    error, width = figures(rows[0])
    shuffled = [figures(rows[0].assign(size=rows[0]["size"].to_numpy()[order])) for order in orders]
    for labels, chosen in (("all", rare | True), ("rare", rare)):
        for measure, before, changes in (
            ("error", error, [after - error for after, _ in shuffled]),
            ("width", width, [np.abs(after - width) for _, after in shuffled]),
        ):
            means = [change[chosen].mean() for change in changes]
            found = table.loc[(measure, labels, "size")]
            assert found["importance"] == pytest.approx(np.mean(means))
            assert found["spread"] == pytest.approx(np.std(means, ddof=1))
            assert found["reference"] == pytest.approx(before[chosen].mean())
            assert found["rows"] == chosen.sum()


def test_mistakes_are_named(model: TailRegressor, rows: Rows) -> None:
    with pytest.raises(ValueError, match="unknown measure 'eror'; did you mean 'error'"):
        importance(model, *rows, measures=["eror"])
    with pytest.raises(ValueError, match="repeats must be at least 2"):
        importance(model, *rows, repeats=1)
    with pytest.raises(ValueError, match="X has 120 rows and y has 5"):
        importance(model, rows[0], rows[1][:5])
