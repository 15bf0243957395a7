"""The command line in this process, without the time that building its commands takes."""

import functools
from typing import Any
from unittest import mock

import typer.main
import typer.testing

from tailwise.cli.app import app

_built = functools.cache(typer.main.get_command)


def invoke(*arguments: object, stdin: bytes | None = None) -> Any:
    """Run a command and return its exit code and what it printed.

    Typer's runner would build all commands anew, which takes longer than most of them run.
    """
    with mock.patch.object(typer.testing, "_get_command", _built):
        return typer.testing.CliRunner().invoke(app, [str(part) for part in arguments], input=stdin)
