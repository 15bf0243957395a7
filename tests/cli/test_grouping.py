"""Groups of options become single ones on the command line, and come back as groups."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import typer
from typer.testing import CliRunner

from tailwise.cli.app import app
from tailwise.cli.grouping import flattened


@dataclass(frozen=True)
class Manner:
    """Options of a greeting."""

    loud: Annotated[bool, typer.Option("--loud")] = False
    times: Annotated[int, typer.Option("-n", min=1)] = 1


def greet(name: str, word: Annotated[str, typer.Option()] = "hello", *, manner: Manner) -> None:
    """Greet someone."""
    text = f"{word} {name} " * manner.times
    typer.echo(text.upper() if manner.loud else text)


def test_options_of_a_group_are_flags_with_defaults_and_limits() -> None:
    greeting = typer.Typer()
    greeting.command()(flattened(greet))
    run = CliRunner().invoke
    assert run(greeting, ["Ann"]).stdout == "hello Ann \n"
    assert run(greeting, ["Ann", "--loud", "-n", "2", "--word", "hi"]).stdout == "HI ANN HI ANN \n"
    assert run(greeting, ["Ann", "-n", "0"]).exit_code == 2
    shown = run(greeting, ["--help"]).stdout
    assert "Greet someone." in shown and "--loud" in shown and "manner" not in shown


def test_commands_list_the_options_of_their_groups_last() -> None:
    for command in ("fit", "predict", "evaluate", "recalibrate", "compare", "explain", "diagnose"):
        shown = CliRunner().invoke(app, [command, "--help"]).stdout
        places = [shown.index(f"--{name}") for name in ("encoding", "force", "quiet", "json", "config")]
        assert places == sorted(places), command
