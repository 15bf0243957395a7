"""What commands print and write: checked output files, checkpoints, notes, tables and JSON."""

from __future__ import annotations

import glob
import re
import shutil
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

if TYPE_CHECKING:
    import logging

STANDARD = "-"
"""Stands for standard input or output in place of a file's name."""
PAGES = ("", ".html", ".htm")
"""Endings of the file of a report."""
CHECKPOINT = ".checkpoint"
"""Ending of the file that a stopped command leaves beside its output."""


# -- files ---------------------------------------------------------------------------------------


def check_outputs(
    outputs: Mapping[str, str | Path | None],
    *,
    force: bool,
    inputs: Sequence[str | Path] = (),
    table: bool = False,
) -> None:
    """Raise an error, before any work is done, for an output that cannot or must not be written.

    `outputs` has the file of each flag, None where the flag is not given. With `table`, the file may be
    ``-``, standard output, and its name must end like a format that `write_table` can write.
    """
    given = {flag: path for flag, path in outputs.items() if path is not None}
    for path in given.values():
        if Path(path).is_dir():
            raise ValueError(f"{path} is a folder: name a file in it")
    for flag, path in given.items():
        if flag == "--report":
            check_page_name(Path(path))
        if str(path) == STANDARD:
            if not table:
                raise ValueError("only predictions can be written to - (standard output): name a file")
        else:
            _check_output(Path(path), force=force, inputs=inputs, table=table)
        for other, its_path in given.items():
            if other != flag and Path(its_path).absolute() == Path(path).absolute():
                raise ValueError(f"{flag} and {other} name the same file")


def check_page_name(path: Path) -> None:
    """Raise an error for a report whose name promises something other than HTML."""
    if path.suffix.lower() not in PAGES:
        raise ValueError(
            f"a report is an HTML page, but {path} ends in {path.suffix}: name a file that ends in .html; a "
            "browser can print it as PDF"
        )


def _check_output(out: Path, *, force: bool, inputs: Sequence[str | Path], table: bool) -> None:
    import tempfile

    if table:
        from tailwise.tables.read import check_table_name

        check_table_name(out)
    if out.exists() and not out.is_file():  # moving a file to its place would remove it
        raise ValueError(f"{out} is a pipe or a device: name a file; predictions can also go to -")
    for source in inputs:
        if str(source) != STANDARD and Path(source).exists() and out.exists() and out.samefile(source):
            raise ValueError(f"{out} is also an input: name another file to write to")
    if out.exists() and not force:
        raise ValueError(f"{out} already exists: name another file, or overwrite it with --force")
    folder = next(folder for folder in (out.parent, *out.parent.parents) if folder.exists())
    if not folder.is_dir():
        raise ValueError(f"cannot write {out}: {folder} is not a folder")
    try:
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise ValueError(
            f"cannot write {out}: no file can be created in {folder.absolute()} ({error.strerror})"
        ) from error


def save_picture(figure: Any, path: Path) -> None:
    """Write a chart in the format that its file name asks for."""
    from tailwise.writing import write_atomically

    kind = path.suffix.lstrip(".").lower() or "png"
    if kind not in figure.canvas.get_supported_filetypes():
        raise ValueError(f"cannot draw {path}: use .png, .svg or .pdf")
    write_atomically(path, lambda part: figure.savefig(part, format=kind, dpi=150))


def write_outputs(contents: Mapping[Path, str | Callable[[Path], object]], quiet: bool) -> None:
    """Write files, all of them or none, and print their names.

    The content of a file is its text, or a function that writes to the path it is given.
    """
    from tailwise.writing import write_together

    def writer(content: str | Callable[[Path], object]) -> Callable[[Path], object]:
        return content if callable(content) else lambda part: part.write_text(content, encoding="utf-8")

    write_together({path: writer(content) for path, content in contents.items()})
    for path in contents:
        note(f"wrote {path}", quiet)


def checkpoint_path(out: Path, suffix: str = "") -> Path:
    """Return the file that keeps unfinished work for the output `out`."""
    return out.with_name(out.name + suffix + CHECKPOINT)


def remove_checkpoint(kept: Path) -> None:
    """Remove a checkpoint of finished work, and those of further networks (``.1``, ``.2`` and so on)."""
    for path in kept.parent.glob(f"{glob.escape(kept.name)}*"):
        if path.name == kept.name or path.name.removeprefix(f"{kept.name}.").isdigit():
            path.unlink(missing_ok=True)
    shutil.rmtree(_on_ray(kept), ignore_errors=True)


def _on_ray(kept: Path) -> Path:
    """Return the folder where Ray's workers keep a checkpoint."""
    return kept.with_name(f"{kept.name}.ray")


@contextmanager
def resumable(kept: Path | None) -> Iterator[None]:
    """Add to an interruption or a full disk whether the same command can resume, and from which file."""
    try:
        yield
    except KeyboardInterrupt as stop:
        if kept is None:
            stop.args = ("nothing was kept; with --out the same command could resume",)
        elif kept.exists() or _on_ray(kept).exists():
            stop.args = (f"no output was written; the same command resumes from {kept}",)
        else:
            stop.args = ("nothing was written",)
        raise
    except OSError as error:
        if kept is not None and kept.exists():
            error.add_note(f"the same command resumes from {kept}")
        raise


# -- words ---------------------------------------------------------------------------------------


_CONTROLS = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff\ud800-\udfff]"
)
"""Characters that move a cursor, change colours or hide text on a terminal."""


def printable(text: str) -> str:
    """Return text for a terminal: names from data cannot control it.

    >>> printable("a\\x1b[2Jb")
    'a\\\\x1b[2Jb'
    """
    return _CONTROLS.sub(lambda found: found[0].encode("unicode_escape").decode(), text)


def note(text: str, quiet: bool = False) -> None:
    """Print something that is not a result to standard error."""
    if not quiet:
        typer.echo(printable(text), err=True)


def command_line() -> str:
    """Return the command as it was typed."""
    import shlex

    return shlex.join(["tailwise", *sys.argv[1:]])


@contextmanager
def progress_shown(quiet: bool) -> Iterator[None]:
    """Print the lines that training logs."""
    import logging

    if quiet:
        yield
        return
    logger, handler = logging.getLogger("tailwise"), logging.StreamHandler()
    handler.setFormatter(logging.Formatter("%(message)s"))
    handler.addFilter(_make_printable)
    level, propagate = logger.level, logger.propagate
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    logger.propagate = False
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.setLevel(level)
        logger.propagate = propagate


def _make_printable(record: logging.LogRecord) -> bool:
    record.msg, record.args = printable(record.getMessage()), ()
    return True


def print_words(text: str) -> None:
    """Print sentences, wrapped at words on a terminal and as one line elsewhere."""
    text = printable(text)
    if not sys.stdout.isatty():
        typer.echo(text)
        return
    from rich.console import Console
    from rich.text import Text

    Console().print(Text(text))


def print_json(data: Any) -> None:
    """Print results as JSON."""
    import json

    typer.echo(json.dumps(_plain_data(data), indent=2, allow_nan=False))


def _plain_data(value: Any) -> Any:
    """Return numbers, strings, lists and mappings; a number that is not finite becomes null."""
    if isinstance(value, Mapping):
        return {str(key): _plain_data(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain_data(item) for item in value]
    if hasattr(value, "item"):
        value = value.item()
    if isinstance(value, float) and not abs(value) < float("inf"):
        return None
    return str(value) if isinstance(value, Path) else value


# -- tables --------------------------------------------------------------------------------------


def print_table(
    header: Sequence[str], rows: Sequence[Sequence[str]], *, names: int = 1, title: str = ""
) -> None:
    """Print a table. Columns that do not fit follow below, each time beside the first `names` columns."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    lines = [[printable(cell) for cell in line] for line in (header, *rows)]
    columns = list(zip(*lines, strict=True))
    title = printable(title)
    widths = [max(map(len, cells)) + 2 for cells in columns]
    console = Console(width=None if sys.stdout.isatty() else sum(widths))
    start = names
    while start < len(columns):
        end, used = start + 1, sum(widths[:names]) + widths[start]
        while end < len(columns) and used + widths[end] <= console.width:
            used, end = used + widths[end], end + 1
        shown = [*columns[:names], *columns[start:end]]
        table = Table(*(cells[0] for cells in shown), box=None, title=Text(title) if start == names else None)
        for row in list(zip(*shown, strict=True))[1:]:
            table.add_row(*map(Text, row))  # Text, because a name in brackets is not markup
        console.print(table)
        start = end


def print_comparison(results: Any) -> None:
    """Print a table of methods for each data set, and what it shows."""
    from tailwise.report.results import COLUMNS, comparison_verdict, method_cells

    for data in results.data:
        rows = [[title, *cells] for title, cells in method_cells(results, data).items()]
        print_table(["method", *(figure.name for figure in COLUMNS)], rows, title=data)
    for line in comparison_verdict(results):
        print_words(line)
