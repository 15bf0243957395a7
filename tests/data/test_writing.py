"""Files are written whole or not at all."""

from pathlib import Path

import pytest

from tailwise.data.writing import write_atomically, write_together


def test_a_file_is_written_in_new_folders_and_nothing_beside_it(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "er" / "t.txt"
    write_atomically(path, lambda part: part.write_text("all"))
    assert path.read_text() == "all" and list(path.parent.iterdir()) == [path]


def test_no_reader_sees_a_part_of_a_file(tmp_path: Path) -> None:
    path = tmp_path / "t.txt"
    path.write_text("old")

    def write(part: Path) -> None:
        part.write_text("new")
        assert part.parent == path.parent and path.read_text() == "old"

    write_atomically(path, write)
    assert path.read_text() == "new"


def test_several_files_are_written_all_or_none(tmp_path: Path) -> None:
    first, second = tmp_path / "a", tmp_path / "b"
    first.write_text("old")

    def fail(part: Path) -> None:
        part.write_text("half")
        raise RuntimeError("stopped")

    with pytest.raises(RuntimeError, match="stopped"):
        write_together({first: lambda part: part.write_text("new"), second: fail})
    assert first.read_text() == "old" and list(tmp_path.iterdir()) == [first]
    write_together({path: lambda part: part.write_text("new") for path in (first, second)})
    assert [path.read_text() for path in (first, second)] == ["new", "new"]


def test_a_link_stays_a_link_and_its_file_is_written(tmp_path: Path) -> None:
    (tmp_path / "deep").mkdir()
    real, link = tmp_path / "deep" / "real.csv", tmp_path / "link.csv"
    real.write_text("old")
    link.symlink_to("deep/real.csv")
    write_atomically(link, lambda part: part.write_text("new"))
    assert link.is_symlink() and real.read_text() == "new"
    assert list(real.parent.iterdir()) == [real]


@pytest.mark.parametrize("number", [28, None])
def test_an_error_of_the_system_names_the_file_that_was_asked_for(tmp_path: Path, number: int | None) -> None:
    def full(part: Path) -> None:
        part.write_text("half")
        raise OSError(number, "No space left on device") if number else OSError("torch says no more")

    with pytest.raises(OSError, match="No space left" if number else "torch says no more") as raised:
        write_atomically(tmp_path / "t.csv", full)
    assert raised.value.filename == (str(tmp_path / "t.csv") if number else None)
    assert not list(tmp_path.iterdir())
