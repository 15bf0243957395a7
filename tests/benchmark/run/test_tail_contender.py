"""TailRegressor as a contender."""

from dataclasses import replace

import numpy as np
import pytest

from tailwise import TailRegressor
from tailwise.benchmark import Recipe, choose_contenders
from tailwise.benchmark.run.run_once import run_variants
from tailwise.benchmark.run.tail_contender import tail_contender
from tests.benchmark.conftest import make_small_problem

FAST = {"base": None, "folds": 1}


@pytest.fixture(scope="module")
def quick() -> Recipe:
    return Recipe(trials=1).within(epochs=2)


def test_one_fit_gives_its_own_emphasis_and_emphasis_1(
    quick: Recipe, monkeypatch: pytest.MonkeyPatch
) -> None:
    problem = make_small_problem(rows=300)
    fitted = []
    fit = TailRegressor.fit

    def seen(self: TailRegressor, *arguments: object) -> TailRegressor:
        fitted.append(self)
        return fit(self, *arguments)

    monkeypatch.setattr(TailRegressor, "fit", seen)
    balanced, own = run_variants(tail_contender(), problem, quick, {**FAST, "emphasis": 0.2})
    (model,) = fitted
    assert (own["method"], balanced["method"]) == ("tail", "tail-balanced")
    assert own["title"] == "TailRegressor" and balanced["title"] == "TailRegressor, emphasis 1"
    for record, emphasis in ((own, None), (balanced, 1.0)):
        error = np.abs(model.predict(problem.x_test, emphasis=emphasis) - problem.y_test)
        assert record["metrics"]["raw"]["all"]["mae"] == pytest.approx(error.mean(), rel=1e-5)
        # Its intervals are its own, and nothing is calibrated a second time.
        lower, upper = model.predict_interval(problem.x_test, 0.9, emphasis=emphasis).T
        inside = (lower <= problem.y_test) & (problem.y_test <= upper)
        calibrated = record["metrics"]["calibrated"]["all"]
        assert calibrated["coverage"] == pytest.approx(inside.mean(), rel=1e-5)
        assert calibrated["width"] == pytest.approx((upper - lower).mean(), rel=1e-5)
        assert record["scaling"] == {}
        assert calibrated["nll"] == record["metrics"]["raw"]["all"]["nll"]
    assert own["metrics"]["raw"] != balanced["metrics"]["raw"]
    assert model.epochs == 2 and model.random_state == problem.seed


def test_both_names_are_one_contender() -> None:
    (contender,) = choose_contenders("tail,tail-balanced")
    assert contender.names == ["tail", "tail-balanced"]


def test_inputs_that_are_no_table_are_refused(quick: Recipe) -> None:
    problem = make_small_problem()
    with pytest.raises(ValueError, match="takes tables, but small is not a table"):
        tail_contender().fit(replace(problem, x_train=problem.x_train[:, :, None]), {}, quick)
