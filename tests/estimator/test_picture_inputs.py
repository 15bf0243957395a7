"""Pictures through the estimator: arrays, paths, tables of paths; saved and loaded."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType

import numpy as np
import pandas as pd
import pytest
import torch
from numpy.typing import NDArray

from tailwise import TailRegressor
from tailwise.model import inputs as picture_inputs
from tailwise.model.inputs import as_pictures, augmentation, picture_config
from tests.picture_samples import pictures, write_pictures, zipped

LABELS = np.repeat(np.arange(1.0, 9.0), [46, 36, 26, 18, 14, 10, 6, 4])


@pytest.fixture(scope="module")
def content() -> NDArray[np.uint8]:
    """Pictures of all labels."""
    return pictures(LABELS, 24)


@pytest.fixture(scope="module")
def paths(tmp_path_factory: pytest.TempPathFactory, content: NDArray[np.uint8]) -> list[str]:
    """The same pictures as files, half of them in an archive."""
    folder = tmp_path_factory.mktemp("faces")
    names = [f"{i}.png" for i in range(len(content))]
    write_pictures(folder, names, content)
    archive = zipped(folder, folder.parent / "faces.zip")
    return [str((folder if i % 2 else archive) / name) for i, name in enumerate(names)]


@pytest.fixture(scope="module")
def model(content: NDArray[np.uint8], torchvision: ModuleType) -> TailRegressor:
    """Return a network that was trained for an epoch."""
    return TailRegressor(backbone="resnet18", epochs=1, batch_size=32, random_state=0).fit(content, LABELS)


def test_arrays_tensors_and_paths_are_the_same_pictures(
    content: NDArray[np.uint8], paths: list[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    table = pd.DataFrame({"path": paths})
    for X in (content, torch.from_numpy(content), paths, np.array(paths), table, table["path"]):
        assert np.array_equal(as_pictures(X, (24, 24)), content)
    assert as_pictures(paths[:2], (8, 12)).shape == (2, 8, 12, 3)
    assert np.array_equal(as_pictures(list(content[:2]), (24, 24)), content[:2])
    monkeypatch.setattr(picture_inputs, "IN_MEMORY", 0)
    monkeypatch.setenv("TAILWISE_CACHE", str(tmp_path))
    assert np.array_equal(as_pictures(paths, (24, 24)), content) and list(tmp_path.glob("*.npy"))


@pytest.mark.parametrize(
    ("X", "message"),
    [
        (np.zeros((2, 8, 8, 3)), r"bytes \(uint8\) of shape .*, not float64 of shape \(2, 8, 8, 3\)"),
        (np.zeros((2, 8, 8), np.uint8), r"not uint8 of shape \(2, 8, 8\)"),
        (np.zeros((0, 8, 8, 3), np.uint8), "X has no pictures"),
        (pd.DataFrame({"a": ["x"], "b": ["y"]}), "X has 2 columns"),
        (pd.Series(["a.png", None]), "row 1 of X is (None|nan), not the path"),
        (np.zeros((1, 9, 8, 3), np.uint8), "9 x 8 pixels, but the model was fitted on 24 x 24"),
        (["nowhere/a.png"], "nowhere/a.png does not exist"),
    ],
)
def test_other_inputs_are_explained(X: object, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        as_pictures(X, (24, 24), like=True)


def test_predictions_do_not_depend_on_how_pictures_are_given(
    model: TailRegressor, content: NDArray[np.uint8], paths: list[str], tmp_path: Path
) -> None:
    expected = model.predict(content)
    np.testing.assert_array_equal(model.predict(paths), expected)
    table = pd.DataFrame({"path": paths}, index=range(5, 5 + len(paths)))
    frame = model.predict_frame(table)
    assert frame.index.tolist() == table.index.tolist()
    assert (frame["lower"] <= frame["upper"]).all()
    assert model.score_by_region(paths, LABELS).shape[0] == 4
    loaded = TailRegressor.load(model.save(tmp_path / "faces.tailwise"))
    np.testing.assert_array_equal(loaded.predict(paths), expected)
    assert loaded.model_.inputs.size == (24, 24)
    with pytest.raises(ValueError, match="fitted on 24 x 24"):
        loaded.predict(content[:, :20])
    with pytest.raises(ValueError, match="export_onnx is for tables, not for pictures"):
        model.export_onnx(tmp_path / "faces.onnx")


@pytest.mark.slow
def test_files_are_decoded_at_the_size_asked_for(paths: list[str], torchvision: ModuleType) -> None:
    table = pd.DataFrame({"picture": paths[::2]})
    model = TailRegressor(backbone="resnet18", image_size=16, epochs=1, augment=None, conformal=None)
    model.fit(table, LABELS[::2], eval_set=(paths[1::2], LABELS[1::2]))
    assert model.model_.inputs.size == (16, 16) and model.feature_names_in_.tolist() == ["picture"]
    assert len(model.networks_) == 1 and model.base_ is None


def test_parameters_that_do_not_fit_pictures_are_refused(content: NDArray[np.uint8]) -> None:
    for options, message in (
        ({"base": "catboost"}, "a base takes tables, not pictures"),
        ({"augment": "strog"}, "did you mean 'strong'"),
        ({"feature_dim": 8}, "'resnet18' sets it: leave it out"),
    ):
        with pytest.raises(ValueError, match=message):
            TailRegressor(backbone="resnet18", **options).fit(content, LABELS)  # type: ignore[arg-type]
    assert augmentation(None) is None
    assert picture_config(20_000, cuda=True)["epochs"] == 30 == picture_config(20_000, cuda=False)["epochs"]
