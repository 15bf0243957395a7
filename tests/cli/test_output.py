"""Output files are checked before any work; tables fit the terminal."""

import io
import re
import sys
from pathlib import Path

import pytest

from tailwise.cli.output import print_json, print_table, resumable


def test_an_interruption_says_whether_the_command_can_resume(tmp_path: Path) -> None:
    kept = tmp_path / "m.checkpoint"
    for path, words in ((None, "with --out"), (kept, "nothing was written"), (kept, "resumes from")):
        if words == "resumes from":
            kept.touch()
        with pytest.raises(KeyboardInterrupt, match=words), resumable(path):
            raise KeyboardInterrupt


def test_checkpoints_of_all_networks_are_removed_and_nothing_else(tmp_path: Path) -> None:
    kept = tmp_path / "[m].checkpoint"
    others = ["[m]", "[m].checkpoint.old", "[m].checkpoint.1.html", "m.checkpoint"]
    for name in (kept.name, f"{kept.name}.1", f"{kept.name}.12", *others):
        (tmp_path / name).touch()
    with resumable(kept):
        pass
    assert sorted(p.name for p in tmp_path.iterdir()) == sorted(others)


def test_json_has_null_for_numbers_that_are_not_finite(capsys: pytest.CaptureFixture[str]) -> None:
    print_json({"a": [float("nan"), 1.5], "path": Path("p"), 3: float("inf")})
    assert re.sub(r"\s", "", capsys.readouterr().out) == '{"a":[null,1.5],"path":"p","3":null}'


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_narrow_terminal_shows_every_cell_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    header = ["method", *(f"figure {i}" for i in range(9))]
    rows = [[name, *(f"{i}.25 ± 0.5" for i in range(9))] for name in ("Vanilla", "VIR ([red]m.tailwise)")]
    for columns in (60, 40, 200):
        monkeypatch.setenv("COLUMNS", str(columns))
        monkeypatch.setenv("NO_COLOR", "1")
        monkeypatch.setattr("sys.stdout", Terminal())
        print_table(header, rows, title="[b]houses")
        shown = re.sub(r"\x1b\[[0-9;]*m", "", sys.stdout.getvalue())  # type: ignore[attr-defined]
        assert "…" not in shown and shown.count("[b]houses") == 1
        assert max(map(len, shown.splitlines())) <= columns
        for cell in (cell for row in (header, *rows) for cell in row[1:]):
            assert cell in shown
        assert shown.count("VIR ([red]m.tailwise)") == shown.count("Vanilla") == shown.count("method")
    monkeypatch.setenv("COLUMNS", "40")
    monkeypatch.setattr("sys.stdout", Terminal())
    print_table(header, rows[:1], names=2)
    assert sys.stdout.getvalue().count("0.25 ± 0.5") > 1  # type: ignore[attr-defined]
