"""Objects by skops: the same bytes for the same object, and no file can name code to run."""

from __future__ import annotations

import io
import json
import os
import pickle
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.ensemble import HistGradientBoostingRegressor
from sklearn.linear_model import Ridge
from sklearn.preprocessing import FunctionTransformer

from tailwise import TailRegressor
from tailwise.estimator import archive, skops_files
from tailwise.estimator.archive import BASE, PREPROCESSING
from tailwise.estimator.skops_files import from_skops, is_own, to_skops, unknown_types
from tests.estimator.saved_files import members_of, written
from tests.estimator.small_tables import table


def test_bytes_do_not_depend_on_time_or_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    x, y = table(60)
    for model in (Ridge(), HistGradientBoostingRegressor(max_iter=2)):
        data = to_skops(model.fit(x, y))
        monkeypatch.setattr("time.time", lambda: 2e9)
        loaded = from_skops(data, BASE, lambda name: True)
        assert to_skops(loaded) == to_skops(model) == data
        np.testing.assert_array_equal(loaded.predict(x), model.predict(x))


def test_objects_that_are_shared_stay_shared() -> None:
    one, other = np.arange(3.0), np.arange(3.0)
    first, second, third = from_skops(to_skops([one, one, other]), BASE, lambda name: True)
    assert first is second and third is not first
    with zipfile.ZipFile(io.BytesIO(to_skops([one, one, other]))) as opened:
        assert opened.namelist() == ["1.npy", "2.npy", "schema.json"]
        assert json.loads(opened.read("schema.json"))["__id__"] == 1


def test_types_that_nobody_knows() -> None:
    data = to_skops(HistGradientBoostingRegressor(max_iter=1).fit(*table(60)))
    (name,) = unknown_types(data, lambda name: False)
    assert name.endswith("TreePredictor") and unknown_types(data, lambda found: found == name) == []
    with pytest.raises(ValueError, match=r"base\.json names '.*TreePredictor', which is refused"):
        from_skops(data, BASE, lambda name: False)


def test_what_a_package_imported_is_not_its_own() -> None:
    assert is_own("sklearn.linear_model._ridge.Ridge", "sklearn")
    assert not is_own("sklearn.linear_model._ridge.np", "sklearn")
    assert not is_own("sklearn.utils.parallel.joblib", "sklearn")
    assert not is_own("sklearn.nothing.Here", "sklearn") and not is_own("sklearn.base.Nothing", "sklearn")


def run_me(*args: Any) -> None:
    raise AssertionError("a file ran code")


def test_a_bomb_inside_the_preprocessing(
    saved_mixed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(archive.LIMITS, PREPROCESSING, 1_000_000)
    with pytest.raises(ValueError, match=r"unpacks to \d+ bytes"):
        TailRegressor.load(saved_mixed)


@pytest.mark.parametrize("function", [os.system, run_me, print, zipfile.ZipFile, pd.read_pickle, pd.eval])
def test_code_named_by_a_forged_file_is_refused(function: Any, saved_mixed: Path, tmp_path: Path) -> None:
    from skops.io import dumps

    forged = {**members_of(saved_mixed), PREPROCESSING: dumps(FunctionTransformer(function))}
    path = written(tmp_path / "m", forged, sums=True)
    with pytest.raises(ValueError, match="which is refused"):
        TailRegressor.load(path)


@pytest.mark.parametrize(
    "name",
    [
        "skrub.datasets._fetching.fetch_employee_salaries",
        "skrub._utils.import_optional_dependency",
        "skrub._table_vectorizer.Pipeline",  # not skrub's own
        "skrub._string_encoder.TfidfVectorizer",
        "skrub._data_ops._data_ops.DataOp",
        "skrub.selectors._base.sys",
        "polars.datatypes.classes.Decimalx",
        "pandas.io.pickle.read_pickle",
        "numpy.load",
        "sklearn.os",
        "builtins.eval",
        "builtins.getattr",
    ],
)
def test_only_what_skrub_needs_is_known(name: str) -> None:
    assert not skops_files.is_known_type(name)


def test_another_object_in_place_of_the_vectorizer(saved_mixed: Path, tmp_path: Path) -> None:
    from skops.io import dumps

    forged = {**members_of(saved_mixed), PREPROCESSING: dumps(FunctionTransformer())}
    with pytest.raises(ValueError, match="holds a FunctionTransformer"):
        TailRegressor.load(written(tmp_path / "m", forged, sums=True))


def test_no_pickle(saved: Path, saved_mixed: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("load", "loads", "Unpickler", "_Unpickler"):
        monkeypatch.setattr(pickle, name, run_me)
    TailRegressor.load(saved)
    TailRegressor.load(saved_mixed)
