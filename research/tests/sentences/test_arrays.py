"""Arrays of npz files: what is wrong is said with the file, and nothing in it is run."""

from pathlib import Path

import numpy as np
import pytest

from tailwise.tables.read import TableError
from tailwise_bench.sentences.arrays import read_arrays


class Trap:
    """Notes it if unpickled."""

    sprung = False

    def __reduce__(self):
        return setattr, (Trap, "sprung", True)


def test_named_arrays_are_read(tmp_path: Path) -> None:
    np.savez(tmp_path / "v.npz", a=np.arange(3), b=np.array(["x"]), c=np.ones(2))
    found = read_arrays(tmp_path / "v.npz", ["b", "a"])
    assert list(found) == ["b", "a"]
    assert found["a"].tolist() == [0, 1, 2] and found["b"].tolist() == ["x"]


def test_files_without_the_arrays_are_named(tmp_path: Path) -> None:
    path = tmp_path / "v.npz"
    with pytest.raises(TableError, match=r"v\.npz does not exist or is a folder"):
        read_arrays(path, ["a"])
    with pytest.raises(TableError, match="does not exist or is a folder"):
        read_arrays(tmp_path, ["a"])
    np.savez(path, b=np.ones(1), c=np.ones(1))
    with pytest.raises(TableError, match=r"v\.npz has no array 'a': it holds b, c, but needs a, b"):
        read_arrays(path, ["a", "b"])
    np.savez(path)
    with pytest.raises(TableError, match="no array 'a': it holds nothing"):
        read_arrays(path, ["a"])
    path.write_bytes(b"not a zip archive")
    with pytest.raises(TableError, match="is not an npz file: write it with"):
        read_arrays(path, ["a"])


def test_damaged_archives_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "v.npz"
    np.savez(path, a=np.arange(100))
    content = bytearray(path.read_bytes())
    content[200] ^= 255  # inside the array: its checksum no longer fits
    path.write_bytes(content)
    with pytest.raises(TableError, match=r"is a damaged npz file \(.*\): copy or write it again"):
        read_arrays(path, ["a"])


def test_python_objects_are_not_loaded(tmp_path: Path) -> None:
    np.savez(tmp_path / "v.npz", a=np.array([Trap()], object))
    with pytest.raises(TableError, match="the array 'a' holds Python objects, which could run code"):
        read_arrays(tmp_path / "v.npz", ["a"])
    assert not Trap.sprung
