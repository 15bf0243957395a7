"""Files are written whole or not at all."""

import errno
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tailwise import writing
from tailwise.writing import append_line, claimed, write_atomically, write_together


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


def test_what_a_killed_process_left_is_removed_by_the_next_write(tmp_path: Path) -> None:
    """Parts of the file and of its checkpoints; not those of living processes, other machines or people."""
    dead = subprocess.Popen([sys.executable, "-c", ""])
    dead.wait()
    old = [f".{name}.{writing._HOST}-{dead.pid}-0123abcd" for name in ("m", "m.checkpoint.1", ".m.x")]
    alive = f".m.{writing._HOST}-{os.getpid()}-0123abcd"
    kept = [alive, f".m.00000000-{dead.pid}-0123abcd", f".n.{writing._HOST}-{dead.pid}-0123abcd", ".m.mine"]
    for name in (*old, *kept):
        (tmp_path / name).write_text("part")
    write_atomically(tmp_path / "m", lambda part: part.write_text("whole"))
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted([*kept, "m"])


CLAIMS = """
import os, signal, sys
from pathlib import Path
from tailwise.writing import append_line, claimed
with claimed(Path(sys.argv[1])):
    append_line(Path(sys.argv[1]), b"one")
    os.kill(os.getpid(), signal.SIGKILL)
"""


def test_one_process_at_a_time_appends_and_a_killed_one_blocks_nobody(tmp_path: Path) -> None:
    path = tmp_path / "new" / "lines"
    told = pytest.raises(ValueError, match=r"lines is being written by another run")
    with claimed(path), told, claimed(path):
        raise AssertionError("claimed twice")
    assert list(path.parent.iterdir()) == []  # nothing was appended
    assert subprocess.run([sys.executable, "-c", CLAIMS, str(path)], check=False).returncode == -9
    with claimed(path):
        append_line(path, b"two")
    assert list(path.parent.iterdir()) == [path] and path.read_bytes() == b"one\ntwo\n"


def test_a_line_that_does_not_fit_on_the_disk_is_taken_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "lines"
    path.write_bytes(b"one\n" + 70_000 * b"x")  # a line without an end, longer than what is read at once
    append_line(path, b"two")
    assert path.read_bytes() == b"one\ntwo\n"
    path.write_bytes(b"half")

    def full(handle: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        append_line(path, b"three")
    assert path.read_bytes() == b""
