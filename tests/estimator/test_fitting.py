"""Which rows train, stop and calibrate; weights, seeds, checkpoints."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from tailwise.model import base as preparing
from tailwise.model import training as fitting
from tests.estimator.small_tables import quick, table

# -- which rows are used for what ------------------------------------------------------------------


def test_eval_set_is_held_out_and_all_of_x_trained_on() -> None:
    x, y = table(300)
    fresh, truth = table(200, seed=5)
    model = quick().fit(x, y, eval_set=(fresh, truth))
    assert model.bins_.counts.sum() == 300 and model.model_.record.held_out
    assert "200" not in model.explain_intervals() and "100 held-out rows" in model.explain_intervals()
    assert len(quick(folds=5).fit(x, y, eval_set=(fresh, truth)).networks_) == 1
    listed = quick().fit(x, y, eval_set=[(fresh, truth)])
    np.testing.assert_array_equal(listed.predict_interval(x), model.predict_interval(x))
    for wrong in ([(fresh, truth), (x, y)], x, fresh[0], (fresh, truth, truth)):
        with pytest.raises(ValueError, match=r"eval_set must be one pair \(X, y\)"):
            quick(epochs=1).fit(x, y, eval_set=wrong)


def test_sample_weight_moves_the_model_and_equals_repetition() -> None:
    x, y = table(200)
    weight = np.where(y > np.median(y), 3.0, 1.0)
    weighted = quick().fit(x, y, sample_weight=weight).predict(x)
    repeated = np.repeat(np.arange(200), weight.astype(int))
    again = quick().fit(x[repeated], y[repeated]).predict(x)
    np.testing.assert_allclose(weighted, again)
    assert not np.allclose(weighted, quick().fit(x, y).predict(x), rtol=1e-3)
    with pytest.raises(ValueError, match="at least one non-zero"):
        quick().fit(x, y, sample_weight=np.zeros(200))
    with pytest.raises(ValueError, match="too large to count rows"):
        quick().fit(x, y, sample_weight=1e300 * weight)


@pytest.mark.parametrize("rows", [5, 30])
def test_very_few_rows(rows: int) -> None:
    x, y = table(rows)
    model = quick().fit(x, y)
    with pytest.warns(UserWarning, match="0.9 intervals take 9 held-out rows, and there are 0"):
        found = model.predict_frame(x)
    assert np.isfinite(found.drop(columns="region").to_numpy()).all()
    assert found["lower"].max() <= y.min() and found["upper"].min() >= y.max()
    assert "too small" in model.explain_intervals()


@pytest.mark.parametrize("base", [None, "catboost"])
def test_constant_labels_and_columns(base: str | None, few_trees: None) -> None:
    x, _ = table(150)
    x = np.c_[x, np.ones(150), np.full(150, np.nan)]
    model = quick(base=base).fit(x, np.full(150, 3.0))
    np.testing.assert_allclose(model.predict(x), 3.0, atol=1.0)


def test_the_only_other_label_may_lie_in_one_fold(few_trees: None) -> None:
    """The base for that fold learns from more than 100 equal labels, which CatBoost cannot sample."""
    x, _ = table(150)
    y = np.where(np.arange(150) == 7, 5.0, 0.0)
    (base,) = quick(base="catboost").fit(x, y).model_.base.targets
    assert np.isfinite(base.predict(x)).all()


# -- checkpoints -----------------------------------------------------------------------------------


def test_training_of_folds_goes_on_where_it_was_stopped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    x, y = table(90)
    model = quick(base="lightgbm", folds=3)
    monkeypatch.setattr("tailwise.model.base.TREES", 5)
    expected = model.fit(x, y).predict_frame(x)
    trained, train = [], fitting.train

    def stopped(*args: Any, **kwargs: Any) -> Any:
        if len(trained) == 2:
            raise KeyboardInterrupt
        trained.append(Path(kwargs["checkpoint"]).name)
        return train(*args, **kwargs)

    monkeypatch.setattr(fitting, "train", stopped)
    with pytest.raises(KeyboardInterrupt):
        model.fit(x, y, checkpoint=tmp_path / "c")
    assert sorted(p.name for p in tmp_path.iterdir()) == trained == ["c", "c.1"]
    before = (tmp_path / "c").read_bytes()
    monkeypatch.setattr(fitting, "train", train)
    pd.testing.assert_frame_equal(model.fit(x, y, checkpoint=tmp_path / "c").predict_frame(x), expected)
    assert (tmp_path / "c").read_bytes() == before, "the first network was trained again"
    assert sorted(p.name for p in tmp_path.iterdir()) == ["c", "c.1", "c.2"]


def test_training_goes_on_from_a_model(tmp_path: Path) -> None:
    x, y = table(300)
    first = quick(epochs=2).fit(x, y)
    new = table(60, seed=5)
    further = quick(epochs=1, lr=1e-6).fit(*new, init_model=first)
    np.testing.assert_allclose(further.predict(x, emphasis=0.0), first.predict(x, emphasis=0.0), atol=0.01)
    saved = first.save(tmp_path / "m.tailwise")
    again = quick(epochs=1, lr=1e-6).fit(*new, init_model=saved)
    np.testing.assert_allclose(again.predict(x), further.predict(x), rtol=1e-5)
    with pytest.raises(ValueError, match="init_model differs in its method: 'vir-dial', not 'vanilla'"):
        quick(method="vanilla").fit(*new, init_model=first)
    with pytest.raises(ValueError, match="init_model differs in its columns: 3, not 2"):
        quick().fit(new[0][:, :2], new[1], init_model=first)


def test_a_wrong_eval_set_is_found_before_the_base_is_fitted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(preparing, "CrossFit", None)
    x, y = table()
    with pytest.raises(ValueError, match="X has 2 features"):
        quick(base="catboost").fit(x, y, eval_set=(x[:, :2], y))
    with pytest.raises(ValueError, match="inconsistent"):
        quick(base="catboost").fit(x, y, eval_set=(x, y[:5]))


def test_intervals_by_the_number_of_a_column_and_what_is_wrong() -> None:
    x, y = table(300)
    model = quick(conformal_by=1, folds=2).fit(x, np.c_[y, y])
    assert len(model.model_.inputs.groups.names) == 5
    assert np.isfinite(model.predict_interval(x)).all()
    names = pd.DataFrame(x, columns=["u", "v", "w"])
    assert "By the column 2" in quick(conformal_by=2).fit(names, y).explain_intervals()
    for params, X, message in (
        ({"conformal_by": "v"}, x, "X has no names: give its number"),
        ({"conformal_by": 3}, x, "conformal_by=3 is not one of 3 columns"),
        ({"conformal_by": 3}, names, "conformal_by=3 is not one of 3 columns"),
        ({"conformal_by": "vv"}, names, "column of conformal_by"),
        ({"conformal_by": "v", "conformal": None}, names, "needs conformal intervals"),
        ({"conformal_by": "v", "backbone": "resnet18"}, names, "names a column of a table"),
    ):
        with pytest.raises(ValueError, match=message):
            quick(**params).fit(X, y)


def test_the_method_of_the_paper_reconstructs_a_table_and_leaves_its_decoder_out_of_the_model() -> None:
    x, y = table(100)
    model = quick(method="vir-paper", epochs=2).fit(x, y)
    assert "loss/reconstruction" in model.model_.record.histories[0].history[0]
    assert not any("decoder" in name for name in model.model_.networks[0].state_dict())
