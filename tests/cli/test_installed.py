"""The installed command in a process of its own: every command once well and once with a user's mistake."""

import importlib.metadata
import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

Tailwise = Any
Sample = Callable[..., pd.DataFrame]
FAST = ["--epochs", "2", "--quiet"]
COMMANDS = (
    "demo",
    "diagnose",
    "fit",
    "predict",
    "evaluate",
    "export",
    "compare",
    "report",
    "methods",
    "bench",
)


@pytest.fixture(scope="module")
def results(place: Path, program: Tailwise) -> Path:
    """Results of a comparison that the installed command made."""
    out = program("compare", "houses.csv", "-t", "price", "--methods", "vanilla,vir", "--seeds", 2, "-o",
                  "r.jsonl", "--report", "r.html", *FAST, cwd=place)  # fmt: skip
    assert out.returncode == 0, out.stderr
    assert "lowest error" in out.stdout
    return place / "r.jsonl"


def test_pip_installs_this_program() -> None:
    try:
        installed = importlib.metadata.distribution("tailwise")
    except importlib.metadata.PackageNotFoundError:
        pytest.skip("tailwise is not installed here, only on the path")
    (script,) = [e for e in installed.entry_points if e.group == "console_scripts"]
    from tailwise.cli import main

    assert (script.name, script.load()) == ("tailwise", main)


def test_every_command_is_in_the_documentation() -> None:
    page = (Path(__file__).parents[2] / "docs" / "command-line.md").read_text(encoding="utf-8")
    assert set(re.findall(r"^\| `(\w+)", page, re.M)) == set(COMMANDS)


# -- every command, well -------------------------------------------------------------------------


def test_help_names_every_command_and_imports_nothing_heavy(program: Tailwise) -> None:
    out = program("--help")
    assert out.returncode == 0
    listed = out.stdout.split("Commands:")[1].splitlines()
    assert [line.split()[0] for line in listed if line.strip()] == list(COMMANDS)
    assert not any(line.endswith("...") for line in listed)  # no description is cut off
    heavy = {"torch", "pandas", "numpy", "matplotlib"}
    code = f"import sys, tailwise.cli.app; print(sorted({heavy} & set(sys.modules)))"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env=program.environment
    )
    assert done.stdout.strip() == "[]", done.stderr


def test_help_costs_little_more_than_python_itself(program: Tailwise, record_property: Any) -> None:
    import resource

    def work(*line: str) -> float:
        """Processor time, which other programs on the machine leave alone, at best of three."""
        spent = []
        for _ in range(3):
            before = resource.getrusage(resource.RUSAGE_CHILDREN)
            subprocess.run([*line], capture_output=True, check=True, env=program.environment)
            after = resource.getrusage(resource.RUSAGE_CHILDREN)
            spent.append(after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime)
        return min(spent)

    bare, heavy = work(sys.executable, "-c", "pass"), work(sys.executable, "-c", "import numpy, pandas")
    shown = work(*program.line, "--help")
    record_property("help, in starts of python", round(shown / bare, 1))
    record_property("help, in imports of pandas", round(shown / heavy, 2))
    assert shown < heavy  # a heavy import anywhere on its way would make it slower than pandas alone


def test_demo(program: Tailwise, tmp_path: Path) -> None:
    out = program("demo", "--seeds", 1, "--epochs", 1, "--workers", 1, "--out", "d", cwd=tmp_path)
    assert out.returncode == 0, out.stderr
    assert "VIR" in out.stdout and "wrote" in out.stderr
    assert sorted(p.name for p in (tmp_path / "d").iterdir()) == ["demo.png", "report.html", "results.jsonl"]


def test_diagnose(program: Tailwise, place: Path) -> None:
    out = program("diagnose", "houses.csv", "--target", "price", "--json", cwd=place)
    assert out.returncode == 0 and json.loads(out.stdout)["n"] == 400


def test_predict_from_standard_input_to_standard_output(program: Tailwise, place: Path) -> None:
    with (place / "new.csv").open() as table:
        out = program("predict", "m.tailwise", "-", "-o", "-", cwd=place, stdin=table)
    assert out.returncode == 0, out.stderr
    assert out.stdout.startswith("prediction,std,lower,upper") and len(out.stdout.splitlines()) == 151


def test_evaluate(program: Tailwise, place: Path, tmp_path: Path) -> None:
    out = program("evaluate", "m.tailwise", "new.csv", "--report", tmp_path / "e.html", cwd=place)
    assert out.returncode == 0, out.stderr
    assert "intervals contain" in out.stdout
    page = (tmp_path / "e.html").read_text(encoding="utf-8")
    assert "price: VIR on new.csv" in page
    assert "measured on 150 rows of new.csv, and holds if it has not seen them." in page


def test_report_and_bench_read_what_compare_wrote(program: Tailwise, results: Path, tmp_path: Path) -> None:
    out = program("report", results, "-o", tmp_path / "ranks.html")
    assert out.returncode == 0, out.stderr
    assert 'role="img"' in (tmp_path / "ranks.html").read_text(encoding="utf-8")
    out = program("bench", "tables", results, "--out", tmp_path, "--name", "houses")
    assert out.returncode == 0, out.stderr
    assert "VIR" in (tmp_path / "houses.md").read_text(encoding="utf-8")


def test_methods(program: Tailwise) -> None:
    out = program("methods", "--json")
    assert out.returncode == 0 and "vir" in {method["name"] for method in json.loads(out.stdout)}


@pytest.mark.slow
def test_export(program: Tailwise, place: Path, tmp_path: Path) -> None:
    out = program("export", "m.tailwise", "-o", tmp_path / "m.onnx", cwd=place)
    assert out.returncode == 0, out.stderr
    assert (tmp_path / "m.onnx").stat().st_size > 0


def test_a_terminal_shows_a_bar_and_whole_words(tailwise: Tailwise, place: Path, tmp_path: Path) -> None:
    import pty
    import threading

    ours, theirs = pty.openpty()
    shown = bytearray()

    def watch() -> None:
        try:
            while part := os.read(ours, 4096):
                shown.extend(part)
        except OSError:  # the terminal is closed
            pass

    watching = threading.Thread(target=watch)
    watching.start()
    line = ["fit", place / "houses.csv", "-t", "price", "-o", tmp_path / "m", "--epochs", 2]
    process = tailwise.launch(*line, screen=os.ttyname(theirs))
    assert process.wait() == 0, shown
    os.close(theirs)
    watching.join()
    os.close(ours)
    text = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", shown.decode())
    assert "━" in text and re.search(r"epoch 2/2 .*best", text)  # a bar
    assert len(re.findall(r"^epoch", text, re.M)) <= 2  # not a line for each step besides
    verdict = text[text.index("The tail") :].splitlines()
    assert len(verdict) > 2 and all(len(row) <= 120 for row in verdict)
    assert all(row.endswith((" ", ".", ",", ":")) or row.rstrip()[-1:].isalnum() for row in verdict[:2])


# -- every command, with a mistake ---------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["demo", "--out", "houses.csv"], "houses.csv is a file"),
        (["diagnose", "houses.csv", "-t", "prise"], "did you mean 'price'?"),
        (["fit", "houses.csv", "-t", "prise", "-o", "never"], "did you mean 'price'?"),
        (["predict", "houses.csv", "new.csv", "-o", "never"], "is not a saved tailwise model"),
        (["evaluate", "m.tailwise", "new.csv", "-t", "kind"], "must be numbers, but line 2 holds"),
        (["export", "nothing.tailwise"], "nothing.tailwise does not exist"),
        (["compare", "houses.csv", "-t", "price", "--methods", "virr"], "did you mean 'vir'?"),
        (["report", "houses.csv", "-o", "never"], "houses.csv, line 1 is not JSON"),
        (["bench", "tables", "nothing.jsonl", "--out", "never"], "nothing.jsonl does not exist"),
    ],
    ids=lambda value: value[0] if isinstance(value, list) else "",
)
def test_a_mistake_is_told_in_one_line(
    tailwise: Tailwise, place: Path, arguments: list[str], words: str
) -> None:
    before = {p.name: p.read_bytes() for p in place.iterdir()}
    assert words in tailwise.refused(*arguments, cwd=place)
    assert {p.name: p.read_bytes() for p in place.iterdir()} == before


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("empty.csv", b"", "empty.csv is empty"),
        ("header.csv", b"x,price\n", "no rows"),
        ("text.csv", b"x,price\n1,cheap\n2,dear\n3,cheap\n", "must be numbers, but line 2 holds 'cheap'"),
        ("binary.csv", bytes(range(256)) * 30, "is a binary file"),
        ("missing.csv", None, "missing.csv does not exist"),
        (".", None, "is a folder"),
    ],
)
def test_unusable_tables(
    tailwise: Tailwise, tmp_path: Path, name: str, content: bytes | None, words: str
) -> None:
    if content is not None:
        (tmp_path / name).write_bytes(content)
    assert words in tailwise.refused("diagnose", name, "--target", "price", cwd=tmp_path)
    assert content is None or (tmp_path / name).read_bytes() == content


def test_wrong_usage_is_code_2(program: Tailwise, tailwise: Tailwise) -> None:
    assert program("fit").returncode == 2
    for arguments in (["nonsense"], ["methods", "--nonsense"], ["bench", "nonsense"]):
        assert tailwise(*arguments).returncode == 2, arguments


# -- what the world does -------------------------------------------------------------------------


def test_a_reader_that_stops_early_is_no_error(program: Tailwise, place: Path) -> None:
    with program.start("diagnose", "new.csv", "-t", "price", cwd=place) as process:
        process.stdout.close()  # as `head` does when it has seen enough
        said = process.stderr.read()
    assert process.returncode == 0
    assert "Traceback" not in said and "BrokenPipe" not in said and "Exception ignored" not in said


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no /dev/full here")
@pytest.mark.parametrize("arguments", [["diagnose", "new.csv", "-t", "price"], ["--version"], ["--help"]])
def test_output_that_cannot_be_written_is_an_error(
    program: Tailwise, place: Path, arguments: list[str]
) -> None:
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [*program.line, *arguments], stdout=full, stderr=subprocess.PIPE, text=True, cwd=place,
            env=program.environment, timeout=1200,
        )  # fmt: skip
    assert done.returncode == 1
    assert "No space left" in done.stderr
    assert "Traceback" not in done.stderr and "Exception ignored" not in done.stderr


def test_a_full_disk_is_an_error_and_leaves_no_part(
    tailwise: Tailwise, place: Path, sample: Sample, small_disk: Path
) -> None:
    kept = small_disk / "kept.csv"
    kept.write_text("mine")
    long = small_disk.parent / "long.csv"
    pd.concat([sample(400)] * 10).to_csv(long, index=False)
    for arguments in (
        ["fit", "houses.csv", "-t", "price", "-o", small_disk / "m", *FAST],
        ["predict", "m.tailwise", long, "-o", kept, "--force"],
    ):
        line = tailwise.refused(*arguments, cwd=place)
        assert "No space left" in line or "disk full" in line
        assert [p.name for p in small_disk.iterdir()] == ["kept.csv"]
    assert kept.read_text() == "mine"


@pytest.mark.slow
def test_a_model_and_its_page_are_written_both_or_not_at_all(
    tailwise: Tailwise, place: Path, small_disk: Path, tmp_path: Path
) -> None:
    model, page = tmp_path / "m", small_disk / "r.html"  # the page is what does not fit
    arguments = ["fit", "houses.csv", "-t", "price", "-o", model, "--report", page, "--no-baseline", *FAST]
    assert "No space left" in tailwise.refused(*arguments, cwd=place)
    assert list(small_disk.iterdir()) == [] and not model.exists()
    assert [p.name for p in tmp_path.iterdir() if p.is_file()] == ["m.checkpoint"]
    arguments[arguments.index(page)] = tmp_path / "r.html"
    out = tailwise(*arguments[:-1], cwd=place)  # not quietly: it goes on from what was trained
    assert out.returncode == 0 and "resuming from" in out.stderr and "epoch" not in out.stderr
    assert sorted(p.name for p in tmp_path.iterdir() if p.is_file()) == ["m", "r.html"]
