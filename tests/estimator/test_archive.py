"""A saved model's file is written whole, and one that was changed, cut or forged is refused."""

from __future__ import annotations

import math
import os
import pickle
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from tailwise import TailRegressor
from tailwise.files import archive
from tailwise.files.archive import MANIFEST, MAX_HEADER, VERSION, WEIGHTS, one_line, pack, unpack
from tests.estimator.saved_files import changed, members_of, written

ARRAYS = {"numbers": torch.arange(3.0)}


def test_what_is_packed_is_unpacked(tmp_path: Path) -> None:
    pack(tmp_path / "m", {"x": {"$float": "inf"}, "y": [1, "a"]}, ARRAYS)
    model, arrays = unpack(tmp_path / "m")
    assert model == {"x": math.inf, "y": [1, "a"]}
    assert list(arrays) == ["numbers"] and torch.equal(arrays["numbers"], ARRAYS["numbers"])


def test_the_same_content_gives_the_same_bytes(tmp_path: Path) -> None:
    for name in ("a", "b"):
        pack(tmp_path / name, {"x": 1}, ARRAYS)
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


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
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(ValueError, match="is a pipe or a device"):
        TailRegressor.load(tmp_path / "pipe")
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
        (lambda m: changed(m, version=VERSION + 1), r"in format 4, .* reads format 3: install that version"),
        (lambda m: changed(m, version="1"), "in format '1', .* reads format 3"),
        (lambda m: changed(m, format="something"), "is not a saved tailwise model"),
        (lambda m: changed(m, sha256=None), "does not match its checksum"),
        (lambda m: changed(m, more=None), f"{MANIFEST} has the fields format, version"),
        (lambda m: changed(m, model=None), "model is None, not a mapping"),
        (lambda m: {**m, MANIFEST: b"[1, 2]"}, "is not a saved tailwise model"),
        (lambda m: {**m, MANIFEST: b"{"}, "is damaged or cut short"),
        (lambda m: {**m, MANIFEST: b"[" * 100_000}, "is damaged or cut short"),
        (lambda m: {WEIGHTS: m[WEIGHTS]}, f"it has no {MANIFEST}"),
        (lambda m: {MANIFEST: m[MANIFEST]}, "is damaged: its members are"),
        (lambda m: {**m, WEIGHTS: m[WEIGHTS][:-1]}, "does not match its checksum"),
        (lambda m: {**m, "../evil.py": b""}, "is damaged: its members are"),
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
    for forged in (changed(members, tailwise="0"), {**members, WEIGHTS: members[WEIGHTS] + b" "}):
        written(tmp_path / "n", forged, sums=True)
        with zipfile.ZipFile(tmp_path / "n", "a") as opened:
            opened.comment = comment
        with pytest.raises(ValueError, match="another key, or changed"):
            TailRegressor.load(tmp_path / "n", key=key)


def test_manifests_of_too_many_values(saved: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(archive, "MAX_JSON", 100)
    with pytest.raises(ValueError, match=r"manifest\.json has more than 100 values"):
        TailRegressor.load(saved)


def test_headers_that_are_too_large(saved: Path, tmp_path: Path) -> None:
    members = members_of(saved)
    for header in (
        (MAX_HEADER + 1).to_bytes(8, "little") + bytes(MAX_HEADER + 1),
        (1 << 60).to_bytes(8, "little"),
        (4_000_000).to_bytes(8, "little") + b"{" + b"," * 3_999_998 + b"}",
    ):
        path = written(tmp_path / "m", {**members, WEIGHTS: header}, sums=True)
        with pytest.raises(ValueError, match=r"has a header of \d+ bytes|names too many tensors"):
            TailRegressor.load(path)
