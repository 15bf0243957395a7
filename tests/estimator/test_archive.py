"""A saved model's file is written whole, and one that was changed, cut or forged is refused."""

from __future__ import annotations

import math
import os
import pickle
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
import torch

from tailwise import TailRegressor
from tailwise.files import archive
from tailwise.files.archive import BASE, MANIFEST, PREPROCESSING, VERSION, WEIGHTS, one_line, pack, unpack
from tests.estimator.saved_files import changed, members_of, written


@dataclass(frozen=True)
class Part:
    size: float
    names: tuple[str, ...]


def test_what_is_packed_is_unpacked(tmp_path: Path) -> None:
    description = {
        "numbers": [1, 2.5, math.inf, np.float64(0.1), np.int64(3)],
        "arrays": {"a": np.arange(3), "b": torch.tensor([0.5])},
        "tuple": (1, (2, "x")),
        "part": Part(-math.inf, ("a", "b")),
        "nothing": None,
    }
    pack(tmp_path / "m", description, {WEIGHTS: b"numbers", BASE: b"[]"})
    manifest, members = unpack(tmp_path / "m")
    assert members == {WEIGHTS: b"numbers", BASE: b"[]"}
    assert manifest["numbers"] == [1, 2.5, math.inf, 0.1, 3]
    assert manifest["arrays"] == {"a": [0, 1, 2], "b": [0.5]}
    assert manifest["tuple"] == (1, (2, "x"))
    assert manifest["part"] == {"size": -math.inf, "names": ("a", "b")}
    assert manifest["nothing"] is None and manifest["version"] == VERSION


def test_the_same_content_gives_the_same_bytes(tmp_path: Path) -> None:
    for name in ("a", "b"):
        pack(tmp_path / name, {"x": 1}, {WEIGHTS: b"numbers"})
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


def test_values_that_json_does_not_have(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"'x' of 'y' of the model is a object, which cannot be written"):
        pack(tmp_path / "m", {"y": {"x": object()}}, {WEIGHTS: b""})
    assert os.listdir(tmp_path) == []


def test_errors_in_one_line() -> None:
    assert one_line(ValueError("two\n  lines")) == "two lines"
    assert one_line(KeyError("x")) == "KeyError: 'x'"
    assert one_line(ValueError("")) == "ValueError: "
    assert len(one_line(ValueError("x" * 1000))) == 303


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


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda m: changed(m, version=VERSION + 1), r"has format version 3 .*pip install --upgrade tailwise"),
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
        (lambda m: {**m, "../evil.py": b""}, "not part of a saved model"),
        (lambda m: {**m, "/etc/passwd": b""}, "not part of a saved model"),
        (lambda m: {**m, PREPROCESSING: b""}, "is damaged: its members are"),
        (lambda m: {**m, BASE: b"[]"}, "is damaged: its members are"),
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
    monkeypatch.setitem(archive.LIMITS, MANIFEST, 1000)
    with pytest.raises(ValueError, match=r"manifest.json has \d+ bytes, at most 1000"):
        TailRegressor.load(saved)


def test_a_member_that_occurs_twice(saved: Path, tmp_path: Path) -> None:
    path = written(tmp_path / "m", members_of(saved))
    with zipfile.ZipFile(path, "a") as opened, pytest.warns(UserWarning, match="Duplicate"):
        opened.writestr(WEIGHTS, members_of(saved)[WEIGHTS])
    with pytest.raises(ValueError, match="is damaged: its members are"):
        TailRegressor.load(path)


def test_a_failed_write_leaves_the_old_file(
    simple: TailRegressor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = simple.save(tmp_path / "m")
    before = path.read_bytes()
    monkeypatch.setitem(archive.LIMITS, WEIGHTS, 10)
    with pytest.raises(ValueError, match="more than can be loaded again"):
        simple.save(path, overwrite=True)
    assert path.read_bytes() == before
    assert os.listdir(tmp_path) == ["m"]


def test_a_signed_file_loads_with_its_key_only(simple: TailRegressor, saved: Path, tmp_path: Path) -> None:
    key, other = tmp_path / "key", b"another secret of 32 characters."
    key.write_text("0123456789abcdef0123456789abcdef\n")
    path = simple.save(tmp_path / "m", key=key)
    for given in (None, key, str(key), key.read_bytes().strip()):
        TailRegressor.load(path, key=given)
    with pytest.raises(ValueError, match="m was signed with another key, or changed after it was signed"):
        TailRegressor.load(path, key=other)
    with pytest.raises(ValueError, match="is not signed: load it without a key only if you trust"):
        TailRegressor.load(saved, key=key)
    with pytest.raises(ValueError, match=r"the key has 5 bytes, and a key needs at least 16: make one with"):
        TailRegressor.load(path, key=b"short")
    with zipfile.ZipFile(path) as opened:
        comment = opened.comment
    members = members_of(path)
    for forged in (changed(members, held_out=False), {**members, WEIGHTS: members[WEIGHTS] + b" "}):
        written(tmp_path / "n", forged, sums=True)
        with zipfile.ZipFile(tmp_path / "n", "a") as opened:
            opened.comment = comment
        with pytest.raises(ValueError, match="another key, or changed"):
            TailRegressor.load(tmp_path / "n", key=key)


def test_manifests_of_too_many_values(saved: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(archive.MAX_JSON, MANIFEST, 100)
    with pytest.raises(ValueError, match=r"manifest\.json has more than 100 values"):
        TailRegressor.load(saved)
