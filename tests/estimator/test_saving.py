"""Saved models predict the same to the last bit, and no file can do anything but load or be refused."""

from __future__ import annotations

import hashlib
import io
import json
import os
import pickle
import subprocess
import sys
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.preprocessing import FunctionTransformer
from torch import Tensor, nn

from tailwise import TailRegressor
from tailwise.estimator import saving as artifact
from tailwise.estimator.saving import MANIFEST, PREPROCESSING, VERSION, WEIGHTS
from tailwise.methods import available_methods, get_method
from tailwise.networks.backbones import BACKBONES
from tailwise.networks.parts import Method


def numbers(n: int = 240, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, 4))
    y = np.exp(x[:, 0]) + 0.1 * rng.normal(size=n)
    x[rng.random(x.shape) < 0.05] = np.nan
    return x, y


def mixed(n: int = 240) -> tuple[pd.DataFrame, np.ndarray]:
    rng = np.random.default_rng(1)
    x = pd.DataFrame(
        {
            "number": rng.normal(size=n),
            "whole": pd.array(rng.integers(0, 9, n), dtype="Int64"),
            "flag": rng.random(n) > 0.5,
            "kind": pd.Categorical(rng.choice(["a", "b", "c"], n)),
            "word": rng.choice(["red", "green", None], n),
            "text": [f"item {i} of shelf {i % 7}" for i in rng.integers(0, 500, n)],
            "day": pd.Timestamp("2024-01-01") + pd.to_timedelta(rng.integers(0, 400, n), "D"),
            "hour": pd.Timestamp("2024-01-01", tz="Europe/Paris")
            + pd.to_timedelta(rng.integers(0, 4000, n), "h"),
        },
        index=np.arange(n) + 7,
    )
    return x, np.exp(x["number"].to_numpy()) + (x["kind"] == "a")


def fitted(x: Any, y: Any, **params: Any) -> TailRegressor:
    return TailRegressor(**{"epochs": 2, "random_state": 0, **params}).fit(x, y)


def assert_same_predictions(one: TailRegressor, two: TailRegressor, x: Any) -> None:
    for a, b in zip(one.predict(x, return_std=True), two.predict(x, return_std=True), strict=True):
        np.testing.assert_array_equal(a, b)
    for coverage in (0.5, 0.9, 0.999):
        np.testing.assert_array_equal(one.predict_interval(x, coverage), two.predict_interval(x, coverage))
        assert one.explain_intervals(coverage) == two.explain_intervals(coverage)
    np.testing.assert_array_equal(one.predict_quantiles(x, [0.1, 0.8]), two.predict_quantiles(x, [0.1, 0.8]))
    pd.testing.assert_frame_equal(one.predict_frame(x), two.predict_frame(x), check_exact=True)


@pytest.fixture(scope="module")
def simple() -> TailRegressor:
    return fitted(*numbers())


@pytest.fixture(scope="module")
def saved(simple: TailRegressor, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return simple.save(tmp_path_factory.mktemp("saved") / "model.tailwise")


@pytest.fixture(scope="module")
def saved_mixed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return fitted(*mixed()).save(tmp_path_factory.mktemp("mixed") / "model.tailwise")


# -- what is saved is what comes back --------------------------------------------------------------


@pytest.mark.parametrize(
    "params",
    [
        {},
        {"calibrate": False},
        {"conformal": None},
        {"calibrate": False, "conformal": None},
        {"conformal": "global", "bins": 12},
        {"bins": np.linspace(-1, 12, 9), "many": 30, "few": 5},
        {"method": "infer-noise"},
        {"method": "infer-dropout", "conformal": None},
        {"method": "ensemble", "method_options": {"members": 2}},
        {
            "method_options": {
                "inference": "marginal",
                "recolor": True,
                "weights": {"clip": (0.0, np.inf)},
                "smoothing": {"clip": (0.2, 5.0)},
                "head_options": {"prior": (0.0, 0.2, 1.6, 0.02)},
            }
        },
        {"random_state": np.random.RandomState(0)},
        *({"backbone": name} for name in sorted(BACKBONES)),
    ],
    ids=lambda options: str(options).split(" at 0x")[0],
)
def test_predictions_are_the_same_to_the_last_bit(params: dict[str, Any], tmp_path: Path) -> None:
    x, y = numbers()
    model = fitted(x, y, **params)
    path = model.save(tmp_path / "model.tailwise")
    assert path == tmp_path / "model.tailwise"
    loaded = TailRegressor.load(path)
    assert_same_predictions(model, loaded, 3 * x)
    assert vars(loaded).keys() == vars(model).keys()
    assert vars(loaded.preprocessor_).keys() == vars(model.preprocessor_).keys()
    assert loaded.model_.method == model.model_.method
    assert loaded.history_ == model.history_
    assert loaded.bins_.rule == model.bins_.rule


@pytest.mark.parametrize("method", available_methods())
def test_every_method_comes_back(method: str, tmp_path: Path) -> None:
    x, y = numbers(120)
    model = fitted(x, y, method=method, epochs=1)
    assert_same_predictions(model, TailRegressor.load(model.save(tmp_path / "m")), x)


@pytest.mark.parametrize("method", ["vir", "ensemble"])
def test_several_targets(method: str, tmp_path: Path) -> None:
    x, y = numbers()
    model = fitted(x, np.stack([y, 1e6 - 1e4 * y], axis=1), method=method)
    loaded = TailRegressor.load(model.save(tmp_path / "m"))
    assert_same_predictions(model, loaded, x)
    assert loaded.predict(x).shape == (len(x), 2)
    assert [b.rule for b in loaded.bins_] == [b.rule for b in model.bins_]


def test_tables_with_text_categories_and_dates(tmp_path: Path) -> None:
    x, y = mixed()
    model = fitted(x, y)
    path = model.save(tmp_path / "m")
    loaded = TailRegressor.load(path)
    new = x.assign(kind=pd.Categorical(["never seen"] * len(x)), word="blue", text="other words")
    assert_same_predictions(model, loaded, x)
    with pytest.warns(UserWarning, match="column '(kind|word)' holds values unknown at fit"):
        assert_same_predictions(model, loaded, new)
    assert list(loaded.feature_names_in_) == list(x.columns)
    with zipfile.ZipFile(path) as archive:
        kinds = json.loads(archive.read(MANIFEST))["column_kinds"]
    assert kinds["number"] == "numeric" and kinds["day"] == "datetime"
    assert path.stat().st_size < 3e6


def test_columns_that_pyarrow_holds_load_without_it(tmp_path: Path) -> None:
    """A table read with pyarrow's types, saved, and loaded by an interpreter that cannot import it."""
    import pyarrow as pa

    x, y = numbers()
    days = pd.Series(pd.date_range("2024-01-01", periods=len(x)))
    words = pd.Series([f"word {i % 11}" for i in range(len(x))])
    table = pd.DataFrame(
        {
            "number": pd.Series(x[:, 0]).astype("double[pyarrow]"),
            "moment": days.astype("timestamp[us][pyarrow]"),
            "day": days.dt.date.astype(pd.ArrowDtype(pa.date32())),
            "length": (days - days[0]).astype("duration[us][pyarrow]"),
            "word": words.astype(pd.ArrowDtype(pa.string())),
            "text": words.astype("string[pyarrow]"),
            "plain": words,
        }
    )
    model = fitted(table, y)
    path = model.save(tmp_path / "m")
    assert_same_predictions(model, TailRegressor.load(path), table)
    script = f"""if True:
        import sys
        class NoArrow:
            def find_spec(self, name, path=None, target=None):
                if name.partition(".")[0] == "pyarrow":
                    raise ModuleNotFoundError(name=name)
        sys.meta_path.insert(0, NoArrow())
        import json
        import pandas as pd
        from tailwise import TailRegressor
        days, words = pd.Series(pd.date_range("2024-01-01", periods=3)), ["word 0", "word 1", "word 2"]
        rows = pd.DataFrame({{"number": {x[:3, 0].tolist()}, "moment": days, "day": days.dt.date}})
        rows = rows.assign(length=days - days[0], word=words, text=words, plain=words)
        print(json.dumps(TailRegressor.load({str(path)!r}).predict(rows).tolist()))
    """
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    np.testing.assert_allclose(json.loads(done.stdout), model.predict(table[:3]), rtol=1e-6)


def test_numeric_frames_need_no_skops(tmp_path: Path) -> None:
    x, y = numbers()
    table = pd.DataFrame(x, columns=list("abcd"))
    model = fitted(table, y)
    path = model.save(tmp_path / "m")
    assert_same_predictions(model, TailRegressor.load(path), table)
    with zipfile.ZipFile(path) as archive:
        assert archive.namelist() == [MANIFEST, WEIGHTS]


def test_polars(tmp_path: Path) -> None:
    import polars as pl

    x, y = numbers()
    text = [f"word {i % 11}" for i in range(len(x))]
    days = pl.Series(np.datetime64("2024-01-01") + np.arange(len(x))).cast(pl.Date)
    table = pl.DataFrame({"a": x[:, 0], "b": x[:, 1], "text": text, "day": days})
    table = table.with_columns(pl.col("text").cast(pl.Categorical).alias("kind"))
    model = fitted(table, y)
    assert_same_predictions(model, TailRegressor.load(model.save(tmp_path / "m")), table)


def test_a_default_fit_is_small_and_the_same_model_gives_the_same_file(
    simple: TailRegressor, saved: Path, tmp_path: Path
) -> None:
    assert saved.stat().st_size < 1e6
    again = TailRegressor.load(saved).save(tmp_path / "again")
    assert again.read_bytes() == saved.read_bytes()


def test_loading_leaves_the_random_state_alone(saved: Path) -> None:
    torch.manual_seed(3)
    before = torch.random.get_rng_state()
    TailRegressor.load(saved)
    assert torch.equal(torch.random.get_rng_state(), before)


def test_a_subclass_loads_as_itself_and_can_be_fitted_again(saved: Path) -> None:
    class Mine(TailRegressor):
        pass

    loaded = Mine.load(saved)
    assert type(loaded) is Mine
    x, y = numbers()
    np.testing.assert_array_equal(loaded.fit(x, y).predict(x), fitted(x, y).predict(x))


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
    assert get_method("vanilla").parts == Method()  # what `_model` relies on


# -- a backbone of one's own -----------------------------------------------------------------------


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
def test_a_backbone_of_ones_own_is_given_again(backbone: Any, tmp_path: Path) -> None:
    x, y = numbers()
    model = fitted(x, y, backbone=backbone)
    path = model.save(tmp_path / "m")
    loaded = TailRegressor.load(path, backbone=backbone)
    assert_same_predictions(model, loaded, x)
    assert loaded.backbone is backbone
    with pytest.raises(ValueError, match=r"backbone of your own \(Own\).*pass one of the same shape"):
        TailRegressor.load(path)
    with pytest.raises(ValueError, match="weights are those of another network"):
        TailRegressor.load(path, backbone=Own(width=9))


def test_a_backbone_of_ones_own_with_members(tmp_path: Path) -> None:
    class Pair(Own):
        members = 2

        def forward(self, x: Tensor) -> Tensor:
            features = super().forward(x)
            return torch.stack([features, -features], -2)

    x, y = numbers()
    model = fitted(x, y, backbone=Pair)
    assert model.predict_distribution(x).weights.shape == (2, len(x))
    assert_same_predictions(model, TailRegressor.load(model.save(tmp_path / "m"), backbone=Pair), x)


def test_a_backbone_that_nobody_asked_for(saved: Path) -> None:
    with pytest.raises(ValueError, match="leave out backbone"):
        TailRegressor.load(saved, backbone=Own())


def test_state_that_is_no_tensor_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = fitted(*numbers(), backbone=Own())
    monkeypatch.setattr(Own, "get_extra_state", lambda self: {"a": 1}, raising=False)
    with pytest.raises(ValueError, match=r"backbone._extra_state .* is a dict, and only tensors are written"):
        model.save(tmp_path / "m")


def test_options_that_json_does_not_have(simple: TailRegressor, tmp_path: Path) -> None:
    model = TailRegressor.load(simple.save(tmp_path / "m"))
    model.method_options = {"head_options": {"prior": object()}}
    with pytest.raises(ValueError, match=r"'prior' of 'head_options' of .* cannot be written to a file"):
        model.save(tmp_path / "n")


# -- where files go --------------------------------------------------------------------------------


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


def test_a_failed_write_leaves_the_old_file(
    simple: TailRegressor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = simple.save(tmp_path / "m")
    before = path.read_bytes()
    monkeypatch.setitem(artifact.LIMITS, WEIGHTS, 10)
    with pytest.raises(ValueError, match="more than can be loaded again"):
        simple.save(path, overwrite=True)
    assert path.read_bytes() == before
    assert os.listdir(tmp_path) == ["m"]


def test_an_estimator_that_is_not_fitted(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="not fitted"):
        TailRegressor().save(tmp_path / "m")


# -- files that are refused ------------------------------------------------------------------------


def test_files_that_are_none(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        TailRegressor.load(tmp_path / "missing")
    with pytest.raises(IsADirectoryError, match="is a folder"):
        TailRegressor.load(tmp_path)
    path = tmp_path / "foreign"
    for content, message in (
        (b"", "is empty"),
        (b"PK", "is not a saved tailwise model"),
        (b"hello, world", "is not a saved tailwise model"),
        (b"PK\x03\x04 and no more", "is damaged or cut short"),
        (pickle.dumps({"a": 1}), "is not a saved tailwise model"),
    ):
        path.write_bytes(content)
        with pytest.raises(ValueError, match=message):
            TailRegressor.load(path)
    torch.save({"a": torch.zeros(3)}, path)
    with pytest.raises(ValueError, match="is not a saved tailwise model"):
        TailRegressor.load(path)


def members_of(path: Path) -> dict[str, bytes]:
    with zipfile.ZipFile(path) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def written(path: Path, members: dict[str, bytes], *, sums: bool = False, **options: Any) -> Path:
    """A zip of members, with checksums that match if asked for, as a forger would."""
    if sums:
        manifest = json.loads(members[MANIFEST])
        manifest["members"] = {
            name: hashlib.sha256(data).hexdigest() for name, data in members.items() if name != MANIFEST
        }
        members = {**members, MANIFEST: json.dumps(manifest).encode()}
    with zipfile.ZipFile(path, "w", **options) as archive:
        for name, data in members.items():
            archive.writestr(name, data)
    return path


def changed(members: dict[str, bytes], /, **fields: Any) -> dict[str, bytes]:
    return {**members, MANIFEST: json.dumps({**json.loads(members[MANIFEST]), **fields}).encode()}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda m: changed(m, version=VERSION + 1), r"has format version 2 .*pip install --upgrade tailwise"),
        (lambda m: changed(m, version="1"), "is damaged: format version '1'"),
        (lambda m: changed(m, format="something"), "is not a saved tailwise model"),
        (lambda m: changed(m, members=None), f"{MANIFEST} has no members"),
        (lambda m: changed(m, backbone=None), f"{MANIFEST} has no backbone"),
        (lambda m: {**m, MANIFEST: b"[1, 2]"}, "is not a saved tailwise model"),
        (lambda m: {**m, MANIFEST: b"{"}, "is damaged or cut short"),
        (lambda m: {**m, MANIFEST: b"[" * 100_000}, "is damaged or cut short"),
        (lambda m: {WEIGHTS: m[WEIGHTS]}, f"it has no {MANIFEST}"),
        (lambda m: {MANIFEST: m[MANIFEST]}, "is damaged: its members are"),
        (lambda m: {**m, WEIGHTS: m[WEIGHTS][:-1]}, "does not match its checksum"),
        (lambda m: {**m, "../evil.py": b""}, "no part of a saved model"),
        (lambda m: {**m, "/etc/passwd": b""}, "no part of a saved model"),
        (lambda m: {**m, PREPROCESSING: b""}, "is damaged: its members are"),
    ],
)
def test_files_that_were_changed(
    change: Callable[[dict[str, bytes]], dict[str, bytes]], message: str, saved: Path, tmp_path: Path
) -> None:
    path = written(tmp_path / "m", change(members_of(saved)))
    with pytest.raises(ValueError, match=message) as caught:
        TailRegressor.load(path)
    assert str(path) in str(caught.value) and "\n" not in str(caught.value)


def test_bombs_are_refused_unopened(saved: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    members = members_of(saved)
    bomb = {**members, WEIGHTS: bytes(50_000_000)}
    path = written(tmp_path / "m", bomb, sums=True, compression=zipfile.ZIP_DEFLATED)
    assert path.stat().st_size < 1e6
    with pytest.raises(ValueError, match="is compressed"):
        TailRegressor.load(path)
    monkeypatch.setitem(artifact.LIMITS, MANIFEST, 1000)
    with pytest.raises(ValueError, match=r"manifest.json has \d+ bytes, at most 1000"):
        TailRegressor.load(saved)


def test_a_bomb_inside_the_preprocessing(
    saved_mixed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(artifact.LIMITS, PREPROCESSING, 1_000_000)
    with pytest.raises(ValueError, match=r"unpacks to \d+ bytes"):
        TailRegressor.load(saved_mixed)


def test_a_member_that_occurs_twice(saved: Path, tmp_path: Path) -> None:
    path = written(tmp_path / "m", members_of(saved))
    with zipfile.ZipFile(path, "a") as archive, pytest.warns(UserWarning, match="Duplicate"):
        archive.writestr(WEIGHTS, members_of(saved)[WEIGHTS])
    with pytest.raises(ValueError, match="is damaged: its members are"):
        TailRegressor.load(path)


def run_me(*args: Any) -> None:
    raise AssertionError("a file ran code")


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
    assert not artifact._is_known_type(name)


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


# -- fuzz ------------------------------------------------------------------------------------------


def damaged(data: bytes, rng: np.random.Generator, tries: int) -> Iterator[bytes]:
    """Copies with bytes flipped, cut off, put in or overwritten; as often in the zip's own records."""
    for _ in range(tries):
        at = int(rng.integers(len(data)))
        if rng.random() < 0.4:
            at = (at % 600) if rng.random() < 0.3 else len(data) - 1 - at % 300
        kind = rng.integers(5)
        noise = rng.bytes(int(rng.integers(1, 9)))
        if kind == 0:
            yield data[:at]
        elif kind == 1:
            yield data[:at] + noise + data[at:]
        elif kind == 2:
            yield data[:at] + noise + data[at + len(noise) :]
        elif kind == 3:
            yield data[:at] + data[at + len(noise) :]
        else:
            yield data[:at] + bytes([data[at] ^ (1 << int(rng.integers(8)))]) + data[at + 1 :]


@pytest.mark.parametrize("which", ["saved", "saved_mixed"])
def test_damaged_files_are_refused_or_harmless(
    which: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    source: Path = request.getfixturevalue(which)
    x = numbers()[0] if which == "saved" else mixed()[0]
    expected, path, harmless = TailRegressor.load(source).predict(x), tmp_path / "m", 0
    tries = 400 if which == "saved" else 150
    for copy in damaged(source.read_bytes(), np.random.default_rng(0), tries):
        path.write_bytes(copy)
        try:
            loaded = TailRegressor.load(path)
        except (ValueError, OSError) as error:
            assert "\n" not in str(error)
            continue
        harmless += 1
        np.testing.assert_array_equal(loaded.predict(x), expected)
    assert harmless < tries / 5


def leaves(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    yield path
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in items:
        if not (isinstance(key, int) and key > 1):  # the first two of a list stand for all
            yield from leaves(item, (*path, key))


def test_any_value_of_a_manifest_may_be_wrong(saved: Path, tmp_path: Path) -> None:
    members = members_of(saved)
    rng, path = np.random.default_rng(0), tmp_path / "m"
    wrong: list[Any] = [None, -1, 0, 2.5, "x", [], {}, [[]], True, {"$float": "nan"}, {"$float": "x"}]
    places = [place for place in leaves(json.loads(members[MANIFEST])) if place]
    for place in places:
        manifest = json.loads(members[MANIFEST])
        parent = manifest
        for key in place[:-1]:
            parent = parent[key]
        if rng.random() < 0.3:
            del parent[place[-1]]
        else:
            parent[place[-1]] = wrong[int(rng.integers(len(wrong)))]
        written(path, {**members, MANIFEST: json.dumps(manifest).encode()})
        try:
            TailRegressor.load(path)
        except ValueError as error:
            assert "\n" not in str(error)


def test_weights_that_are_no_safetensors(saved: Path, tmp_path: Path) -> None:
    members = members_of(saved)
    for data in (b"", b"\xff" * 8, b"\xff" * 100, (8).to_bytes(8, "little") + b"{}      "):
        with pytest.raises(ValueError, match="cannot be loaded"):
            TailRegressor.load(written(tmp_path / "m", {**members, WEIGHTS: data}, sums=True))
    buffer = io.BytesIO()
    torch.save({"a": torch.zeros(2)}, buffer)
    with pytest.raises(ValueError, match="cannot be loaded"):
        TailRegressor.load(written(tmp_path / "m", {**members, WEIGHTS: buffer.getvalue()}, sums=True))
