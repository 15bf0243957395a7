"""Model cards."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pandas as pd

from tailwise import TailRegressor
from tailwise.metrics.regions import by_region
from tailwise.model.base import Base
from tailwise.report.wording import number
from tailwise.serving.model_card import model_card
from tests.estimator.small_tables import quick
from tests.estimator.small_tables import table as numbers

VERDICT = {"status": "good", "headline": "It holds.", "sentences": ["Errors are low."], "advice": ""}
NAMES = ("mae", "rmse", "crps", "coverage", "width", "interval_score")
FIGURES = {"n": 40, **dict(zip(NAMES, (0.5, 0.75, 0.4, 0.925, 2.0, 3.0), strict=True))}
TEST: dict[str, Any] = {
    "target": "price",
    "verdict": VERDICT,
    "regions": {"all": FIGURES, "few": {**FIGURES, "n": 0}},
    "base": {"all": {**FIGURES, "mae": None}},
}


def test_a_card_has_the_evidence_of_the_file(model: TailRegressor) -> None:
    card = model_card(model, name="model.tailwise")
    assert "predicts price from 9 columns" in card and "Trained on 120 rows" in card
    assert "| kind | text | no | 3 categories |" in card and "| empty | unused | yes |  |" in card
    (own,) = model.model_.targets
    expected = by_region(
        own.possible(own.held.prediction), own.held.labels, own.bins, ("mae", "rmse"), many=100, few=20
    )
    row = expected.loc["all"]
    assert f"| all | {int(row['n'])} | {number(row['mae'])} | {number(row['rmse'])} |" in card
    assert "No test on rows that training did not see was given." in card
    assert model.explain_intervals(0.9) in card and "tailwise serve model.tailwise" in card
    assert "nan" not in card


def test_a_test_and_a_page_are_shown(model: TailRegressor) -> None:
    card = model_card(model, name="m", test=TEST)
    assert "It holds. Errors are low." in card
    assert "| this model | all | 40 | 0.5 | 0.75 | 0.4 | 92.5% | 2 | 3 |" in card
    assert (
        "| boosted trees | all | 40 | – | 0.75 | 0.4 | 92.5% | 2 | 3 |" in card
        and "| few |" not in card.split("## Test")[1]
    )
    both = model_card(model, name="m", test={"targets": [TEST, {**TEST, "target": "rent"}]})
    assert "### price" in both and "### rent" in both


def test_cards_of_other_models() -> None:
    x, y = numbers(120)
    model = quick(epochs=1, bounds=(-100, 100), method_options={"evidence.weight": 0.01}).fit(
        x, pd.DataFrame({"u": y, "v": -y})
    )
    card = model_card(model, name="m")
    assert card.count("### u") == 2 and "| option evidence.weight | 0.01 |" in card
    assert "stay within -100 to 100, -100 to 100" in card
    model.model_ = replace(model.model_, base=Base(given=2))
    card = model_card(model, name="m")
    assert "The model takes no table" in card and "| base | predictions of your own |" in card
    model.model_ = replace(model.model_, record=replace(model.model_.record, held_out=False))
    assert "The table was too small to hold out rows." in model_card(model, name="m")
