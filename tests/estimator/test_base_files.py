"""Fitted bases come back from JSON to the last bit; what was crafted is refused."""

from __future__ import annotations

import base64
import copy
import importlib.util
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.ensemble import HistGradientBoostingRegressor, RandomForestRegressor
from sklearn.impute import SimpleImputer
from sklearn.linear_model import Ridge
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, StandardScaler

from tailwise import TailRegressor
from tailwise.files.archive import BASE, MANIFEST
from tailwise.files.base_files import base_from_json, base_to_json, checked_catboost, checked_lightgbm
from tailwise.model.base import CrossFitted, cross_fit, resolve_base
from tests.estimator.saved_files import assert_same_predictions, changed, leaves, members_of, written
from tests.estimator.small_tables import quick, table

KINDS: dict[str, Any] = {
    "catboost": "catboost",
    "lightgbm": "lightgbm",
    "histogram": HistGradientBoostingRegressor(max_iter=4),
    "pipeline": make_pipeline(SimpleImputer(), StandardScaler(), Ridge()),
    "forest": RandomForestRegressor(3),
}


def fitted(base: Any, rows: int = 200, folds: int = 2) -> CrossFitted:
    x, y = table(rows)
    x[::9, 1] = np.nan
    make = resolve_base(base, rows)
    assert make is not None
    return cross_fit(make, x, y, np.ones(rows), np.arange(rows) % folds, 0)[0]


def through_json(state: Any) -> Any:
    return json.loads(json.dumps(state))


@pytest.mark.parametrize("kind", KINDS)
def test_bases_come_back_to_the_last_bit(kind: str, few_trees: None) -> None:
    base = fitted(KINDS[kind])
    state = base_to_json(base)
    loaded = base_from_json(through_json(state))
    x, _ = table(300, seed=1)
    x[::9, 1] = np.nan
    np.testing.assert_array_equal(loaded.predict(x), base.predict(x))
    assert base_to_json(base) == state
    if kind != "forest":  # its nodes have bytes that mean nothing
        assert base_to_json(loaded) == state
    again = base_to_json(fitted(KINDS[kind]))  # fitted once more, with the same seed
    if kind != "forest":
        assert again == state


@pytest.mark.parametrize("labels", [np.zeros(60), np.arange(60.0)], ids=["constant", "rising"])
@pytest.mark.parametrize("kind", ["catboost", "lightgbm"])
def test_trees_without_splits(kind: str, labels: np.ndarray, few_trees: None) -> None:
    make = resolve_base(kind, 60)
    assert make is not None
    x, _ = table(60)
    base, _ = cross_fit(make, x, labels, np.ones(60), np.arange(60) % 3, 0)
    np.testing.assert_array_equal(
        base_from_json(through_json(base_to_json(base))).predict(x), base.predict(x)
    )


# -- saved models ----------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["lightgbm", "pipeline"])
def test_saved_models_with_several_targets(kind: str, few_trees: None, tmp_path: Path) -> None:
    x, y = table(120)
    model = quick(base=KINDS[kind], folds=2, epochs=1).fit(x, np.c_[y, -y])
    loaded = TailRegressor.load(model.save(tmp_path / "m"))
    assert_same_predictions(model, loaded, x)
    for asked in ({"emphasis": 0.7}, {"label_prior": [y[y > 1], -y[y > 1]]}):
        np.testing.assert_array_equal(loaded.predict_interval(x, **asked), model.predict_interval(x, **asked))
    assert loaded.emphasis_ == model.emphasis_
    assert loaded.base == (kind if kind == "lightgbm" else None)


@pytest.mark.parametrize("method", ["vir-dial", "vanilla", "ensemble"])
def test_held_out_predictions_come_back(method: str, few_trees: None, tmp_path: Path) -> None:
    """Of one network a normal or an NIG, of an ensemble a mixture."""
    x, y = table(120)
    options = {"method_options": {"members": 2}} if method == "ensemble" else {}
    model = quick(base="lightgbm", method=method, epochs=1, folds=2, **options).fit(x, y)
    loaded = TailRegressor.load(model.save(tmp_path / "m"))
    own, found = model.calibrators_[0].held, loaded.calibrators_[0].held
    assert own is not None and found is not None and type(found.prediction) is type(own.prediction)
    np.testing.assert_array_equal(found.labels, own.labels)
    np.testing.assert_array_equal(found.prediction.variance, own.prediction.variance)
    assert_same_predictions(model, loaded, x)
    np.testing.assert_array_equal(
        loaded.predict_interval(x, emphasis=0.5), model.predict_interval(x, emphasis=0.5)
    )


def test_base_predictions_of_ones_own_are_asked_for_again(tmp_path: Path) -> None:
    x, y = table(60)
    model = quick().fit(x, y, base_prediction=y)
    loaded = TailRegressor.load(model.save(tmp_path / "m"))
    np.testing.assert_array_equal(loaded.predict(x, base_prediction=y), model.predict(x, base_prediction=y))
    with pytest.raises(ValueError, match="pass it for these rows as well"):
        loaded.predict(x)


class Own(RegressorMixin, BaseEstimator):
    def fit(self, X: Any, y: Any) -> Own:
        self.mean_ = float(np.mean(y))
        return self

    def predict(self, X: Any) -> Any:
        return np.full(len(X), self.mean_)


@pytest.mark.parametrize(
    ("base", "message"),
    [
        (Own(), r"the base Own holds .*\.Own, which cannot be saved without pickle: choose a base of"),
        (
            make_pipeline(FunctionTransformer(lambda X: X), Ridge()),
            "the base Pipeline .*cannot be saved without pickle",
        ),
    ],
    ids=["own", "lambda"],
)
def test_a_base_that_cannot_be_saved_is_named(base: Any, message: str, tmp_path: Path) -> None:
    model = quick(base=base, epochs=1).fit(*table(60))
    with pytest.raises(ValueError, match=message):
        model.save(tmp_path / "m")
    assert not (tmp_path / "m").exists()


def test_loading_without_the_package(saved_boosted: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    find = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda n, *a: None if n == "catboost" else find(n, *a))
    with pytest.raises(ValueError, match=r"cannot be loaded: .*needs the package catboost: pip install"):
        TailRegressor.load(saved_boosted)


# -- crafted files ---------------------------------------------------------------------------------


def crafted(change: Callable[[list[Any]], Any], source: Path, path: Path) -> Path:
    members = members_of(source)
    bases = json.loads(members[BASE])
    changed_bases = change(bases)
    members[BASE] = json.dumps(bases if changed_bases is None else changed_bases).encode()
    return written(path, members, sums=True)


def skops_of(value: Any) -> str:
    from skops.io import dumps

    return base64.b64encode(dumps(value)).decode()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda b: b[0].update(kind="pickle"), "unknown kind of base 'pickle'"),
        (lambda b: b[0].update(kind=[]), "cannot be loaded"),
        (lambda b: b[0].update(models=[]), "the base has no models"),
        (lambda b: b[0].update(scale="x"), "cannot be loaded"),
        (lambda b: [*b, *b], "2 bases for 1 targets"),
        (lambda b: [], "0 bases for 1 targets"),
        (lambda b: {}, "0 bases for 1 targets"),
        (lambda b: b[0].update(kind="scikit-learn", models=["no base64"]), "cannot be loaded"),
        (lambda b: b[0].update(kind="scikit-learn", models=[skops_of(Own())]), r"\.Own', which is refused"),
        (
            lambda b: b[0].update(
                kind="scikit-learn", models=[skops_of(FunctionTransformer(subprocess.run))]
            ),
            "which is refused",
        ),
        (lambda b: b[0].update(kind="scikit-learn", models=[skops_of(StandardScaler())]), "not a regressor"),
        (lambda b: b[0].update(kind="lightgbm", models=["tree\n"]), "the base is cut short"),
        (
            lambda b: b[0]["models"][0]["oblivious_trees"][0].update(leaf_values=[1.0]),
            "does not fit its splits",
        ),
        (lambda b: b[0]["models"][0].update(scale_and_bias="x"), "cannot be loaded"),
    ],
)
def test_crafted_bases_are_refused(change: Any, message: str, saved_boosted: Path, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=message) as caught:
        TailRegressor.load(crafted(change, saved_boosted, tmp_path / "m"))
    assert "\n" not in str(caught.value)


def test_a_base_that_the_manifest_does_not_expect(saved_boosted: Path, tmp_path: Path) -> None:
    members = members_of(saved_boosted)
    without = {name: data for name, data in members.items() if name != BASE}
    with pytest.raises(
        ValueError, match="cannot be loaded: there are edges for 4 columns, but the inputs have 3"
    ):
        TailRegressor.load(written(tmp_path / "m", without, sums=True))
    for count in (0, -1, 10**9, "3", True):
        with pytest.raises(ValueError, match=r"its networks is .*, not a whole number from 1 to 1000"):
            TailRegressor.load(written(tmp_path / "n", changed(members, networks=count)))
    assert json.loads(members[MANIFEST])["networks"] == 3


def spoilt(state: Any, rng: np.random.Generator) -> list[Any]:
    """Copies of a state, each with one value that is wrong or missing."""
    wrong: list[Any] = [None, -1, 0, 2.5, "x", [], {}, [[]], True, 1e9, 10**6]
    copies = []
    for place in filter(None, leaves(state)):
        spoiled = copy.deepcopy(state)
        parent = spoiled
        for key in place[:-1]:
            parent = parent[key]
        if rng.random() < 0.2:
            del parent[place[-1]]
        else:
            parent[place[-1]] = wrong[int(rng.integers(len(wrong)))]
        copies.append(spoiled)
    return copies


@pytest.mark.slow
def test_no_value_of_a_base_crashes_python(few_trees: None, tmp_path: Path) -> None:
    """In a process of its own: CatBoost's and LightGBM's own readers end the process for many of these."""
    rng = np.random.default_rng(0)
    cat, light = (through_json(base_to_json(fitted(kind))) for kind in ("catboost", "lightgbm"))
    states = spoilt({**cat, "models": cat["models"][:1]}, rng)
    (text, _) = light["models"]
    lines = text.splitlines(keepends=True)
    for i, line in enumerate(lines[:28]):
        name, _, value = line.rstrip("\n").partition("=")
        for other in ("", "x", "-1", "1000000", "99999999999", value[: value.rfind(" ")], f"{value} 7"):
            changed_text = "".join([*lines[:i], f"{name}={other}\n", *lines[i + 1 :]])
            if other != value:
                states.append({**light, "models": [changed_text]})
    states += [{**light, "models": [text[:cut] + "end of trees\n"]} for cut in range(0, len(text) - 20, 499)]
    (tmp_path / "states.json").write_text(json.dumps(states))
    script = f"""if True:
        import json, numpy as np
        from tailwise.files.base_files import base_from_json
        for state in json.load(open({str(tmp_path / "states.json")!r})):
            try:
                base_from_json(state).predict(np.zeros((3, 3)))
            except Exception:
                pass
        print("alive")
    """
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert done.stdout.endswith("alive\n"), (done.returncode, done.stderr[-500:])


def test_what_is_wrong_with_a_model_of_catboost(few_trees: None) -> None:
    """Without its number, a feature ended the process in CatBoost's own reader."""
    (state, *_) = through_json(base_to_json(fitted("catboost")))["models"]
    assert checked_catboost(state) == state
    feature, tree = state["features_info"]["float_features"][0], state["oblivious_trees"][0]
    split = tree["splits"][0]
    for place, name, wrong, message in (
        (state, "ctr_data", {}, "not a model of CatBoost with symmetric trees"),
        (state["features_info"], "text_features", [], "features of CatBoost that are not numbers"),
        (state, "scale_and_bias", [1, [float("nan")]], "a bias that is not a finite number"),
        (feature, "flat_feature_index", [], "feature 0 of the base has another number"),
        (feature, "feature_index", False, "feature 0 of the base has another number"),
        (feature, "has_nans", 0, "does not say what a missing value means"),
        (feature, "nan_value_treatment", "x", "does not say what a missing value means"),
        (feature, "borders", [1.0, 1.0], "feature 0 of the base has borders that do not ascend"),
        (feature, "borders", "12", "a border that is not a finite number"),
        (tree, "leaf_values", [0.0], "a tree of the base does not fit its splits"),
        (tree, "leaf_weights", ["1"] * 64, "a leaf_weights that is not a finite number"),
        (split, "split_index", -1, "a tree of the base does not fit its splits"),
        (split, "split_type", "OneHotFeature", "a tree of the base does not fit its features"),
        (split, "float_feature_index", 9, "a tree of the base does not fit its features"),
    ):
        before = place.copy()
        place[name] = wrong
        with pytest.raises(ValueError, match=message):
            checked_catboost(state)
        place.clear()
        place.update(before)
    del feature["flat_feature_index"]
    with pytest.raises(KeyError):
        checked_catboost(state)


def test_what_is_wrong_with_a_text_of_lightgbm(few_trees: None) -> None:
    (text, _) = base_to_json(fitted("lightgbm"))["models"]
    assert checked_lightgbm(text) == text
    tree = "Tree=" + text.split("Tree=")[1]
    for old, new, message in (
        ("num_class=1", "num_class=2", "a header that is not LightGBM's for one target"),
        ("max_feature_idx=2", "max_feature_idx=7", "does not have 8 names"),
        ("tree_sizes=", "tree_sizes=1 ", "trees of other sizes"),
        ("num_cat=0", "num_cat=1", "categorical splits or linear trees"),
        ("is_linear=0", "is_linear=1", "categorical splits or linear trees"),
        ("split_feature=", "split_features", "tree 0 of the base is not one of LightGBM's"),
    ):
        with pytest.raises(ValueError, match=message):
            checked_lightgbm(text.replace(old, new))
    fields = dict(line.split("=") for line in tree.split("\n")[:-3] if line)
    left = fields["left_child"].split()
    for wrong in (["0", *left[1:]], ["99", *left[1:]], ["-99", *left[1:]], ["1.5", *left[1:]], left[:-1]):
        looped = tree.replace(f"left_child={fields['left_child']}", f"left_child={' '.join(wrong)}")
        sizes = text.split("tree_sizes=")[1].split("\n")[0]
        sized = text.replace(tree, looped).replace(
            f"tree_sizes={sizes}", f"tree_sizes={len(looped)} {sizes.partition(' ')[2]}"
        )
        with pytest.raises(ValueError, match="tree 0 of the base does not fit together"):
            checked_lightgbm(sized)
