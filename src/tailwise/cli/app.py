"""The application that commands register with: the one place where errors become words and exit codes."""

from __future__ import annotations

import os
import sys
import warnings
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from tailwise._version import __version__
from tailwise.cli import discard_output, stop_code

DEBUG = "TAILWISE_DEBUG"
"""Environment variable that shows where an error came from, for those who look for its cause."""


class _Commands(TyperGroup):
    def invoke(self, ctx: Any) -> Any:
        try:
            with warnings.catch_warnings():
                _warn_in_words()
                result = super().invoke(ctx)
            sys.stdout.flush()  # a full disk is an error here, not a traceback at exit
            return result
        except KeyboardInterrupt as stop:
            typer.echo(f"stopped: {stop}" if str(stop) else "stopped", err=True)
            raise typer.Exit(stop_code(stop)) from None
        except BrokenPipeError:  # the reader of a pipe, such as `head`, has seen enough
            discard_output()
            raise typer.Exit(0) from None
        except Exception as error:
            if hasattr(error, "exit_code") or isinstance(error, typer.Abort) or os.environ.get(DEBUG):
                raise
            discard_output()
            typer.echo(f"error: {_in_words(error)}", err=True)
            raise typer.Exit(1) from None


def _warn_in_words() -> None:
    """Show what tailwise warns of as notes; what others warn of is for developers."""
    if os.environ.get(DEBUG):
        return
    warnings.simplefilter("ignore")
    warnings.filterwarnings("always", category=UserWarning, module=r"tailwise\.")

    said = set()

    def show(message: Warning | str, *_: Any, **__: Any) -> None:
        if str(message) not in said:  # of rows that are predicted once for each target, say
            typer.echo(f"note: {message}", err=True)
        said.add(str(message))

    warnings.showwarning = show


def _in_words(error: Exception) -> str:
    """What went wrong and what to do, from an exception."""
    text = " ".join(str(error).split()) or type(error).__name__
    if isinstance(error, OSError) and error.strerror:
        where = f"use {error.filename}" if error.filename else "write"
        return f"cannot {where}: {error.strerror}"
    if isinstance(error, FileExistsError):
        return f"{text} with --force"
    if isinstance(error, MemoryError):
        return "not enough memory: give fewer rows, fewer label bins, or columns with fewer different texts"
    if "PytorchStreamWriter" in text or "inline_container" in text:
        reason = text.partition("strerror: ")[2]  # torch knows no more than this
        return f"a file could not be written: {reason or 'is the disk full?'}"
    if isinstance(error, (ValueError, OSError, RuntimeError, ImportError)):
        return text
    return f"unexpected {type(error).__name__}: {text} (set {DEBUG}=1 to see where, and please report it)"


app = typer.Typer(
    name="tailwise",
    cls=_Commands,
    help="Regression where the interesting labels are rare.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


def _version(show: bool) -> None:
    if show:
        typer.echo(f"tailwise {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    pass
