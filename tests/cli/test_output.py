"""What commands print and write: nothing is lost, and nothing is half written."""

import io
import re
import runpy
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import tailwise.report.page
from tailwise.cli.output import print_json, print_table, print_words, resumable
from tests.cli.conftest import FAST, Run, Sample


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


def test_words_on_a_terminal_keep_their_indent_on_every_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "20")
    monkeypatch.setattr("sys.stdout", Terminal())
    print_words("  " + "word " * 20)
    lines = sys.stdout.getvalue().splitlines()  # type: ignore[attr-defined]
    assert len(lines) > 1 and all(line.startswith("  word") for line in lines)


# -- outputs -------------------------------------------------------------------------------------


def test_a_full_disk_is_an_error_and_leaves_no_part(
    run: Run, place: Path, sample: Sample, small_disk: Path
) -> None:
    kept = small_disk / "kept.csv"
    kept.write_text("mine")
    long = small_disk.parent / "long.csv"
    pd.concat([sample(400, text=True)] * 10).to_csv(long, index=False)
    for file, arguments in (
        ("m.checkpoint", ["fit", place / "houses.csv", "-t", "price", "-o", small_disk / "m", *FAST]),
        ("kept.csv", ["predict", place / "m.tailwise", long, "-o", kept, "--force"]),
    ):
        out = run(*arguments)
        assert out.exit_code == 1
        assert f"cannot use {small_disk / file}: No space left" in out.stderr
        assert [p.name for p in small_disk.iterdir()] == ["kept.csv"]
    assert kept.read_text() == "mine"


def test_a_model_and_its_page_are_written_both_or_not_at_all(
    run: Run, place: Path, small_disk: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tailwise.report.page, "model_page", lambda *_: "x" * 100_000)
    model, page = tmp_path / "m", small_disk / "r.html"  # the page does not fit
    line = ["fit", place / "numbers.csv", "-t", "price", "-o", model, "--no-baseline", *FAST[:-1]]
    out = run(*line, "--report", page)
    assert out.exit_code == 1 and "No space left" in out.stderr
    assert out.stderr.endswith(f"; the same command resumes from {model}.checkpoint\n")
    assert list(small_disk.iterdir()) == [] and not model.exists()
    assert [p.name for p in tmp_path.iterdir() if p.is_file()] == ["m.checkpoint"]
    out = run(*line, "--report", tmp_path / "r.html")
    assert out.exit_code == 0 and "resuming from" in out.stderr and "epoch 1" not in out.stderr
    assert sorted(p.name for p in tmp_path.iterdir() if p.is_file()) == ["m", "r.html"]


# -- hostile names and files ---------------------------------------------------------------------


def test_names_from_data_cannot_control_a_terminal(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("\x1b[2Jx,price\n" + "\n".join(f"{i},{i}" for i in range(30)), encoding="utf-8")
    for line in (
        ["diagnose", path, "-t", "nothing"],
        ["fit", path, "-t", "price", "-o", tmp_path / "m", *FAST],
    ):
        out = run(*(word for word in line if word != "--quiet"))
        assert "\x1b" not in out.output and "x1b[2Jx" in out.output


def test_a_target_named_self_and_a_signature(run: Run, sample: Sample, tmp_path: Path) -> None:
    table, key, model = tmp_path / "t.csv", tmp_path / "key", tmp_path / "m"
    sample(60).rename(columns={"price": "self", "z": "=z"}).assign(note="=1+1").to_csv(table, index=False)
    line = ["fit", table, "-t", "self", "-o", model, *FAST, "--drop", "note"]
    key.write_text("0123456789abcdef")
    assert run(*line, "--sign", key).exit_code == 0
    out = tmp_path / "p.csv"
    asked = ["predict", model, table, "-o", out, "--force", "--keep", "note,=z"]
    assert run(*asked, "--verify", key).exit_code == 0
    assert out.read_text().splitlines()[1].startswith("=1+1,")
    key.write_text("another secret key")
    refused = run(*asked, "--verify", key)
    assert refused.exit_code == 1 and "was signed with another key" in refused.stderr


# -- malformed tables ------------------------------------------------------------------------------


FILES = 80
FUZZ = Path(__file__).parents[2] / "research" / "studies" / "fuzz.py"


def lines_for(number: int, path: Path, place: Path, folder: Path) -> list[list[str]]:
    """Commands to run on a file: always `diagnose`, now and then one that takes longer."""
    model, out = str(place / "m.tailwise"), str(folder / "kept")
    rarely = [
        ["predict", model, str(path), "-o", out, "--force"],
        ["evaluate", model, str(path), "-t", "price"],
        ["fit", str(path), "-t", "price", "-o", out, "--force", "--epochs", "1", "--folds", "1"],
        ["compare", str(path), "-t", "price", "--methods", "vanilla", "--seeds", "1", "--epochs", "1"],
    ]
    always = ["diagnose", str(path), "-t", "price"]
    return [always, *([rarely[number // 20 % 4]] if number % 20 == 0 else [])]


def test_malformed_files_never_crash_and_never_cost_a_file(run: Run, place: Path, tmp_path: Path) -> None:
    codes, kept, malformed = {0: 0, 1: 0}, tmp_path / "kept", runpy.run_path(str(FUZZ))["malformed"]
    for number in range(FILES):
        path, content = tmp_path / f"{number}.csv", malformed(number, np.random.default_rng([7, number]))
        path.write_bytes(content)
        for arguments in lines_for(number, path, place, tmp_path):
            kept.write_text("mine")
            out = run(*arguments)
            where = (number, arguments[0], out.exit_code, out.stderr)
            assert out.exception is None or isinstance(out.exception, SystemExit), where
            assert out.exit_code in codes, where
            assert "unexpected" not in out.stderr, where
            assert out.exit_code == 0 or out.stderr.count("error: ") == 1, where
            assert path.read_bytes() == content, where
            written = out.exit_code == 0 and str(kept) in arguments
            assert (kept.read_text(errors="replace") != "mine") == written, where
            assert {p.name for p in tmp_path.iterdir()} == {path.name, "kept"}, where
            codes[out.exit_code] += 1
        path.unlink()
    assert min(codes.values()) >= 20  # both ends were seen
