"""A saved model's file is written whole, and one that was changed, cut or forged is refused."""

from __future__ import annotations

import hashlib
import os
import pickle
from pathlib import Path

import numpy as np
import pytest
import torch

from tailwise import TailRegressor, __version__
from tailwise.files import codec
from tailwise.files.archive import VERSION, unpack
from tailwise.files.codec import MAX_JSON
from tests.estimator.saved_files import parts_of, written


def test_files_that_are_none(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        TailRegressor.load(tmp_path / "missing")
    with pytest.raises(IsADirectoryError):
        TailRegressor.load(tmp_path)
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(ValueError, match="is a pipe or a device"):
        TailRegressor.load(tmp_path / "pipe")
    path = tmp_path / "foreign"
    torch.save({"a": torch.zeros(3)}, path)
    for content in (b"", b"tailwise", b"hello, world", pickle.dumps({"a": 1}), path.read_bytes()):
        path.write_bytes(content)
        with pytest.raises(ValueError, match="is not a saved tailwise model"):
            TailRegressor.load(path)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (b"model 7", b"model 8", rf"in format 8, and tailwise {__version__} reads format 7: install that"),
        (b" 7 0", b"", r"was written by tailwise .* in format .*, and tailwise"),
        (b"\n-\n", b"\n", "was changed, damaged or cut short: it does not match its checksum"),
        (b'"params"', b'"Params"', "does not match its checksum"),
    ],
)
def test_files_that_were_changed(old: bytes, new: bytes, message: str, saved: Path, tmp_path: Path) -> None:
    path, data = tmp_path / "m", saved.read_bytes()
    assert old in data
    path.write_bytes(data.replace(old, new, 1))
    with pytest.raises(ValueError, match=message) as caught:
        TailRegressor.load(path)
    assert str(path) in str(caught.value) and "\n" not in str(caught.value)


def test_damage_is_found_wherever_it_is(saved: Path, tmp_path: Path) -> None:
    data, rng, path = saved.read_bytes(), np.random.default_rng(0), tmp_path / "m"
    start = data.index(b"\n") + 1  # the first line ends with the version that wrote the file
    for at in [*range(start, start + 64, 3), *rng.integers(start + 68, len(data), 40).tolist()]:
        flip, noise = bytes([data[at] ^ (1 << int(rng.integers(8)))]), rng.bytes(int(rng.integers(1, 9)))
        for copy in (data[:at], data[:at] + noise + data[at:], data[:at] + flip + data[at + 1 :]):
            path.write_bytes(copy)
            with pytest.raises(ValueError, match="it does not match its checksum"):
                unpack(path)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "cannot be loaded"),
        (b"{\n", "cannot be loaded"),
        (b"[1, 2]\n", "cannot be loaded"),
        (b"[" * 100_000 + b"\n", "RecursionError"),
        (b"[" + b"1," * MAX_JSON + b"1]\n", "it has more than 1048576 values"),
        (b"{}\n" + (1 << 60).to_bytes(8, "little"), "cannot be loaded"),
        (
            b"{}\n" + (2 * MAX_JSON).to_bytes(8, "little") + b"," * 2 * MAX_JSON,
            "it has more than 1048576 values",
        ),
        (b"{}\n" + (8).to_bytes(8, "little") + b"{}      ", "model is {}, not one of ModelState"),
    ],
    ids=lambda value: str(value)[:20],
)
def test_forged_contents(content: bytes, message: str, tmp_path: Path) -> None:
    path, checksum = tmp_path / "m", hashlib.sha256(content).hexdigest()
    path.write_bytes(f"tailwise model {VERSION} 0\n{checksum}\n-\n".encode() + content)
    with pytest.raises(ValueError, match=message) as caught:
        TailRegressor.load(path)
    assert str(path) in str(caught.value) and "\n" not in str(caught.value)


def test_a_failed_write_leaves_the_old_file(
    simple: TailRegressor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = simple.save(tmp_path / "m")
    before = path.read_bytes()
    monkeypatch.setattr(codec, "MAX_JSON", 10)
    with pytest.raises(ValueError, match="the model cannot be saved: it has more than 10 values"):
        simple.save(path, overwrite=True)
    assert path.read_bytes() == before and os.listdir(tmp_path) == ["m"]


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
    model, weights = parts_of(path)
    signature = path.read_bytes().split(b"\n", 3)[2]
    forged = written(tmp_path / "n", {**model, "target_names": ["x"]}, weights)
    forged.write_bytes(forged.read_bytes().replace(b"\n-\n", b"\n" + signature + b"\n", 1))
    assert TailRegressor.load(forged).target_names_ == ["x"]
    with pytest.raises(ValueError, match="another key, or changed"):
        TailRegressor.load(forged, key=key)
