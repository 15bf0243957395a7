"""Saved models predict the same to the last bit, and no file can do anything but load or be refused."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from torch import Tensor, nn

from tailwise import TailRegressor
from tailwise.networks.backbones import BACKBONES
from tailwise.networks.losses import LOSSES
from tailwise.networks.parts import Method, Part
from tests.estimator.saved_files import assert_same_predictions, mixed, numbers, parts_of
from tests.estimator.small_tables import quick


def quick_fit(x: Any, y: Any, **params: Any) -> TailRegressor:
    return quick(**{"epochs": 1, **params}).fit(x, y)


@pytest.mark.parametrize(
    "params",
    [
        {},
        {"calibrate": False, "conformal": None},
        {"bins": np.linspace(-1, 12, 9), "many": 30, "few": 5},
        *(
            {"method": m}
            for m in ("balanced-nll", "infer-noise", "rrt", "srl", "two-part", "vir-modes", "vir-uvote")
        ),
        {"method": "infer-dropout", "conformal": None},
        {"method": "ensemble", "method_options": {"members": 2}},
        {
            "method_options": {
                "inference": "marginal",
                "weights": {"clip": (0.0, 1e9)},
                "smoothing": {"clip": (0.2, 5.0), "at_inference": True},
                "head.prior": (0.0, 0.2, 1.6, 0.02),
            }
        },
        {"random_state": np.random.RandomState(0)},
        *({"backbone": name} for name in sorted(BACKBONES)),
    ],
    ids=lambda options: str(options).split(" at 0x")[0],
)
def test_predictions_are_the_same_to_the_last_bit(params: dict[str, Any], tmp_path: Path) -> None:
    x, y = numbers(150)
    model = quick_fit(x, y, **params)
    path = model.save(tmp_path / "model.tailwise")
    assert path == tmp_path / "model.tailwise"
    loaded = TailRegressor.load(path)
    assert_same_predictions(model, loaded, 3 * x)
    assert vars(loaded).keys() == vars(model).keys()
    assert vars(loaded.preprocessor_).keys() == vars(model.preprocessor_).keys()
    assert loaded.networks_[0].method == model.networks_[0].method
    for history in model.histories_:
        for row in history.history:
            del row["seconds"]  # a file has no timings: the same model gives the same file
    assert loaded.histories_ == model.histories_
    assert loaded.bins_.rule == model.bins_.rule


def test_tables_with_text_categories_and_dates(tmp_path: Path) -> None:
    x, y = mixed()
    model = quick_fit(x, y)
    path = model.save(tmp_path / "m")
    loaded = TailRegressor.load(path)
    new = x.assign(kind=pd.Categorical(["never seen"] * len(x)), word="blue", text="other words")
    assert_same_predictions(model, loaded, x)
    with pytest.warns(UserWarning, match="column '(kind|word)' holds values unknown at fit"):
        assert_same_predictions(model, loaded, new)
    assert list(loaded.feature_names_in_) == list(x.columns)
    kinds = {column["name"]: column["class"] for column in parts_of(path)[0]["table"]["encoders"]}
    assert kinds["number"] == "NumberColumn" and kinds["day"] == "DateColumn"
    assert path.stat().st_size < 3e6


@pytest.mark.parametrize("which", ["saved", "saved_boosted", "saved_mixed"])
def test_a_quick_fit_is_small_and_the_same_model_gives_the_same_file(
    which: str, request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path: Path = request.getfixturevalue(which)
    assert path.stat().st_size < 2e6
    loaded = TailRegressor.load(path)
    monkeypatch.setattr("time.time", lambda: 2e9)
    again = loaded.save(tmp_path / "again")
    assert again.read_bytes() == path.read_bytes()


def test_what_a_name_means_may_change_but_a_saved_model_does_not(
    simple: TailRegressor, saved: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tailwise.methods import registry

    # Not `delitem`, which would put it back in another place and change the order for other tests.
    others = {name: method for name, method in registry._REGISTRY.items() if name != "vir"}
    monkeypatch.setattr(registry, "_REGISTRY", others)
    x, _ = numbers()
    loaded = TailRegressor.load(saved)
    np.testing.assert_array_equal(loaded.predict(x), simple.predict(x))


def test_a_method_of_the_users_own_is_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from tailwise.methods import registry

    monkeypatch.setitem(LOSSES, "own", LOSSES["absolute"])
    monkeypatch.setattr(registry, "_REGISTRY", dict(registry._REGISTRY))
    registry.register("own", title="Own", parts=Method(losses=(Part("own"),)), about="An example.")
    path = quick_fit(*numbers(), method="own").save(tmp_path / "m")
    monkeypatch.undo()
    with pytest.raises(
        ValueError, match=r"unknown loss 'own'.*; run the plugin that registers the method 'own'"
    ):
        TailRegressor.load(path)


class Own(nn.Module):
    feature_dim = 8

    def __init__(self, width: int = 8) -> None:
        super().__init__()
        self.one = nn.Linear(4, 8)
        self.two = nn.Linear(8, width)
        self.tied = self.one.weight  # safetensors would refuse memory that is shared

    def forward(self, x: Tensor) -> Tensor:
        features: Tensor = torch.relu(self.two(torch.relu(self.one(torch.nan_to_num(x)))))
        return features


@pytest.mark.parametrize("backbone", [Own(), Own], ids=["module", "factory"])
def test_a_backbone_of_ones_own_is_given_again(backbone: Any, saved: Path, tmp_path: Path) -> None:
    x, y = numbers()
    model = quick_fit(x, y, backbone=backbone)
    path = model.save(tmp_path / "m")
    loaded = TailRegressor.load(path, backbone=backbone)
    assert_same_predictions(model, loaded, x)
    assert loaded.backbone is backbone
    with pytest.raises(ValueError, match=r"backbone of your own \(Own\).*pass one of the same shape"):
        TailRegressor.load(path)
    with pytest.raises(ValueError, match="weights are those of another network"):
        TailRegressor.load(path, backbone=Own(width=9))
    with pytest.raises(ValueError, match="leave out backbone"):
        TailRegressor.load(saved, backbone=Own())


def test_an_existing_file_stays_unless_told(simple: TailRegressor, tmp_path: Path) -> None:
    path = tmp_path / "m.tailwise"
    path.write_text("precious")
    with pytest.raises(ValueError, match="exists already: pass overwrite=True"):
        simple.save(path)
    assert path.read_text() == "precious"
    simple.save(path, overwrite=True)
    TailRegressor.load(str(path))
    with pytest.raises(ValueError, match="is a folder"):
        simple.save(tmp_path, overwrite=True)
    assert os.listdir(tmp_path) == ["m.tailwise"]
