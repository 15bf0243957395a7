"""The application: all commands in the order of --help, and how errors become messages and exit codes."""

from __future__ import annotations

import inspect
import os
import sys
import warnings
from collections.abc import Callable
from dataclasses import fields, is_dataclass
from functools import wraps
from inspect import Parameter
from typing import Annotated, Any, get_type_hints

import typer
from typer.core import TyperGroup

from tailwise._version import __version__
from tailwise.cli import compare, discard_output, evaluate, exit_code, fit, models
from tailwise.cli.output import note

DEBUG = "TAILWISE_DEBUG"
"""Environment variable; when set, errors show a traceback."""
_NO_MEMORY = ("failed to map segment from shared object", "can't allocate memory", "bad_alloc")
"""What libraries say when there is not enough memory."""


class _Commands(TyperGroup):
    def invoke(self, ctx: Any) -> Any:
        try:
            with warnings.catch_warnings():
                _show_warnings_as_notes()
                result = super().invoke(ctx)
            sys.stdout.flush()  # report a full disk here, not as a traceback at exit
            return result
        except KeyboardInterrupt as stop:
            note(f"stopped: {stop}" if str(stop) else "stopped")
            raise typer.Exit(exit_code()) from None
        except BrokenPipeError:  # the reader of a pipe, such as `head`, has closed it
            discard_output()
            raise typer.Exit(0) from None
        except Exception as error:
            if hasattr(error, "exit_code") or isinstance(error, typer.Abort) or os.environ.get(DEBUG):
                raise
            discard_output()
            note(f"error: {'; '.join([_message(error), *getattr(error, '__notes__', [])])}")
            raise typer.Exit(1) from None


def _show_warnings_as_notes() -> None:
    """Print each warning of tailwise as a note, one of each kind about a column, and hide all others."""
    if os.environ.get(DEBUG):
        return
    warnings.simplefilter("ignore")
    warnings.filterwarnings("always", category=UserWarning, module=r"tailwise\.")
    shown = set()

    def show(message: Warning | str, kind: Any, filename: str, lineno: int, *_: Any, **__: Any) -> None:
        about = (
            getattr(message, "column", str(message)),
            filename,
            lineno,
        )  # parts of a table differ in counts
        if about not in shown:
            note(f"note: {message}")
        shown.add(about)

    warnings.showwarning = show  # type: ignore[assignment]


def _message(error: Exception) -> str:
    """Return one line that says what went wrong and what to do."""
    text = " ".join(str(error).split()) or type(error).__name__
    if isinstance(error, OSError) and error.strerror:
        return f"cannot {f'use {error.filename}' if error.filename else 'write'}: {error.strerror}"
    if isinstance(error, MemoryError) or any(words in text for words in _NO_MEMORY):
        return "not enough memory: use fewer rows, fewer label bins, or columns with fewer distinct texts"
    if isinstance(error, (ValueError, OSError, RuntimeError, ImportError)):
        return text
    return f"unexpected {type(error).__name__}: {text} (set {DEBUG}=1 for a traceback, and please report it)"


def flattened(command: Callable[..., None]) -> Callable[..., None]:
    """Return a command whose signature, from which Typer reads the options, lists those of groups one by one.

    A parameter that is a dataclass stands for one option per field.

    >>> from dataclasses import dataclass
    >>> @dataclass
    ... class Shared:
    ...     quiet: bool = False
    >>> def greet(name: str, *, shared: Shared) -> None:
    ...     print(name, shared.quiet)
    >>> list(inspect.signature(flattened(greet)).parameters)
    ['name', 'quiet']
    """
    hints = get_type_hints(command, include_extras=True)
    groups: dict[str, Any] = {name: kind for name, kind in hints.items() if is_dataclass(kind)}
    listed: list[Parameter] = []
    for name, parameter in inspect.signature(command).parameters.items():
        options = inspect.signature(groups[name]).parameters.values() if name in groups else [parameter]
        kinds = get_type_hints(groups.get(name, command), include_extras=True)
        listed += [o.replace(kind=Parameter.KEYWORD_ONLY, annotation=kinds[o.name]) for o in options]

    @wraps(command)
    def call(**options: Any) -> None:
        for name, group in groups.items():
            options[name] = group(**{option.name: options.pop(option.name) for option in fields(group)})
        command(**options)

    call.__signature__ = inspect.Signature(listed)  # type: ignore[attr-defined]
    call.__annotations__ = {parameter.name: parameter.annotation for parameter in listed}
    return call


app = typer.Typer(
    name="tailwise",
    cls=_Commands,
    help="Regression with rare labels: accurate on them, with intervals that hold.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,  # plain help: faster, and no type names beside the options
    context_settings={"max_content_width": 100},
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


for command in (
    compare.demo,
    compare.diagnose,
    fit.fit,
    models.predict,
    evaluate.evaluate,
    models.explain,
    models.export,
    models.recalibrate,
    compare.compare,
    compare.report,
    compare.methods,
    models.serve,
    models.card,
    compare.doctor,
):
    app.command()(flattened(command))
