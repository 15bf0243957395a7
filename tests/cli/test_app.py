"""The program in a process of its own, its options, and how errors become messages and exit codes."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.conftest import FAST, Installed, Run
from tests.plugin_samples import forgotten, write_plugin

DOCS = Path(__file__).parents[2] / "docs"
COMMANDS = (
    "demo", "diagnose", "fit", "predict", "evaluate", "explain", "export", "recalibrate", "compare", "report",
    "methods", "serve", "card", "doctor",
)  # fmt: skip


def test_every_command_is_in_the_documentation() -> None:
    page = (DOCS / "command-line.md").read_text(encoding="utf-8")
    assert set(re.findall(r"^\| `(\w+)", page, re.M)) == set(COMMANDS)


# -- help ----------------------------------------------------------------------------------------


def test_help_names_every_command_and_imports_nothing_heavy(program: Installed) -> None:
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


@pytest.mark.parametrize("command", COMMANDS[:-1])
def test_every_option_of_a_command_is_described_and_documented(run: Run, command: str) -> None:
    shown = run(command, "--help").stdout.split("Options:")[1]
    options = re.findall(r"^  (?:-\w, )?(--[\w-]+)", shown, re.M)
    pages = "\n".join(page.read_text(encoding="utf-8") for page in DOCS.glob("*.md"))
    for option in options:
        line = shown[shown.index(option) :]
        assert re.match(r"--[\w-]+(?:(?: /|,) --[\w-]+)?(?: [A-Z=,]+)?\s+[A-Za-z]", line), option
        assert option == "--help" or re.search(rf"{option}\b", pages), option


# -- exit codes ----------------------------------------------------------------------------------


def test_the_program_itself_ends_with_the_code_and_no_traceback(program: Installed, tmp_path: Path) -> None:
    (tmp_path / "empty.csv").touch()
    line = program.refused("diagnose", "empty.csv", "--target", "price", cwd=tmp_path)
    assert "empty.csv is empty" in line


# -- standard output -----------------------------------------------------------------------------


def test_a_reader_that_stops_early_is_no_error(program: Installed, place: Path) -> None:
    with program.start("diagnose", "new.csv", "-t", "price", cwd=place) as process:
        process.stdout.close()  # as `head` does
        said = process.stderr.read()
    assert process.returncode == 0
    assert "Traceback" not in said and "BrokenPipe" not in said and "Exception ignored" not in said


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no /dev/full here")
def test_output_that_cannot_be_written_is_an_error(program: Installed) -> None:
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [*program.line, "--version"], stdout=full, stderr=subprocess.PIPE, text=True,
            env=program.environment, timeout=1200,
        )  # fmt: skip
    assert done.returncode == 1
    assert "No space left" in done.stderr
    assert "Traceback" not in done.stderr and "Exception ignored" not in done.stderr


def test_a_terminal_shows_the_epochs_and_whole_words(program: Installed, place: Path, tmp_path: Path) -> None:
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
    line = ["fit", place / "numbers.csv", "-t", "price", "-o", tmp_path / "m", "--epochs", 2, "--folds", 1,
            "--base", "none"]  # fmt: skip
    process = subprocess.Popen(
        [*program.line, *map(str, line)], stdout=theirs, stderr=theirs, env=program.environment
    )
    os.close(theirs)
    assert process.wait() == 0, shown
    watching.join()
    os.close(ours)
    text = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", shown.decode())
    assert re.search(r"^epoch \d/2 .*best", text, re.M)  # at most one line per second
    verdict = text[text.index("What to do:") :].splitlines()
    assert len(verdict) > 2 and all(len(row) <= 120 for row in verdict)
    assert all(row.endswith((" ", ".", ",", ":")) or row.rstrip()[-1:].isalnum() for row in verdict[:2])


# -- options as text, and plugins ------------------------------------------------------------------


def test_a_method_of_a_plugin_is_trained_saved_and_read(run: Run, place: Path, tmp_path: Path) -> None:
    plugin, model = write_plugin(tmp_path), tmp_path / "m"
    fit = ["fit", place / "numbers.csv", "-t", "price", "-o", model, "--method", "huber", *FAST]
    out = run(*fit)
    assert out.exit_code == 1 and "unknown method 'huber'" in out.stderr
    with forgotten():
        out = run(*fit, "--plugin", plugin, "--ray", "auto")
        assert out.exit_code == 1 and "do not run a --plugin: leave out --ray" in out.stderr
        out = run(*fit, "--plugin", plugin)
        assert out.exit_code == 0, out.output
    predict = ["predict", model, place / "new.csv", "-o", tmp_path / "p.csv"]
    out = run(*predict)
    assert out.exit_code == 1
    assert "run the plugin that registers the method 'huber' first" in out.stderr
    with forgotten():
        out = run(*predict, "--plugin", plugin)
        assert out.exit_code == 0, out.output
