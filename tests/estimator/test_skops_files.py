"""Objects by skops: the same bytes for the same object, and no file can name code to run."""

from __future__ import annotations

import io
import json
import os
import pickle
import tracemalloc
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.ensemble import HistGradientBoostingRegressor
from sklearn.linear_model import Ridge
from sklearn.preprocessing import FunctionTransformer

from tailwise import TailRegressor
from tailwise.files import archive, skops_files
from tailwise.files.archive import BASE, PREPROCESSING
from tailwise.files.skops_files import from_skops, to_skops, unknown_types
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
        "skrub._llm_encoder.LLMEncoder",
        "skrub._text_encoder.TextEncoder",
        "skrub.datasets._fetching.fetch_employee_salaries",
        "skrub._utils.import_optional_dependency",
        "skrub._data_ops._data_ops.DataOp",
        "skrub.selectors._base.sys",
        "polars.datatypes.classes.Object",
        "pandas.io.pickle.read_pickle",
        "numpy.load",
        "sklearn.datasets._openml.fetch_openml",
        "builtins.getattr",
    ],
)
def test_only_what_skrub_needs_is_known(name: str) -> None:
    assert not skops_files.is_known_type(name)


def test_an_encoder_that_loads_what_a_file_names_is_refused(
    saved_mixed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A stub in the place of skrub's LLMEncoder, inside a vectorizer that is sound otherwise."""
    from skops.io import dumps
    from skrub import TableVectorizer, _llm_encoder

    class LLMEncoder(TransformerMixin, BaseEstimator):
        def __init__(self, model_name: str = "any") -> None:
            self.model_name = model_name

        def __setstate__(self, state: Any) -> None:
            run_me()

    LLMEncoder.__module__, LLMEncoder.__qualname__ = _llm_encoder.__name__, "LLMEncoder"
    monkeypatch.setattr(_llm_encoder, "LLMEncoder", LLMEncoder)
    forged = {**members_of(saved_mixed), PREPROCESSING: dumps(TableVectorizer(high_cardinality=LLMEncoder()))}
    with pytest.raises(ValueError, match=r"names 'skrub._llm_encoder.LLMEncoder', which is refused"):
        TailRegressor.load(written(tmp_path / "m", forged, sums=True))


def packed(members: dict[str, bytes]) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as opened:
        for name, data in members.items():
            opened.writestr(name, data)
    return buffer.getvalue()


def test_bombs_in_a_skops_file_are_refused_before_memory_is_taken() -> None:
    array = io.BytesIO()
    np.lib.format.write_array_header_1_0(array, {"descr": "<f8", "fortran_order": False, "shape": (10**12,)})
    for members, message in (
        ({"1.npy": bytes(30_000_000)}, r"unpacks to 30000000 bytes, more than 16777216"),
        ({"schema.json": b"[" + b"[]," * 4_000_000 + b"[]]"}, "too many values"),
        ({"1.npy": array.getvalue()}, "does not have the size it declares"),
        ({"1.npz": b""}, "holds '1.npz', which is refused"),
    ):
        data = packed(members)
        tracemalloc.start()
        with pytest.raises(ValueError, match=message):
            from_skops(data, BASE, lambda name: True)
        assert tracemalloc.get_traced_memory()[1] < 30e6
        tracemalloc.stop()


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
