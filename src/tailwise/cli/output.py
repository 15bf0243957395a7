"""What commands print and write: checked output files, checkpoints, notes, tables and JSON."""

from __future__ import annotations

import glob
import json
import re
import shlex
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import typer

STANDARD = "-"
"""Stands for standard input or output in place of a file's name."""
Content = str | Callable[[Path], object]
"""The text of a file, or a function that writes to the path it is given."""

# -- files ---------------------------------------------------------------------------------------


def check_outputs(
    outputs: Mapping[str, str | Path | None],
    *,
    force: bool,
    inputs: Sequence[str | Path | None] = (),
    table: bool = False,
) -> None:
    """Raise an error, before any work is done, for an output that cannot or must not be written.

    `outputs` has the file of each flag, None where the flag is not given, as in `inputs`. With `table`, the
    file may be ``-``, standard output, and its name must end like a format that `write_table` can write.
    """
    places = [Path(path) for path in outputs.values() if path is not None]
    for path in places:
        if str(path) == STANDARD and table:
            continue
        if str(path) == STANDARD:
            raise ValueError("only predictions can be written to - (standard output): name a file")
        if table:
            from tailwise.tables.read import check_table_name

            check_table_name(path)
        _check_output(path, force, [Path(source) for source in inputs if source is not None])
    if len({path.absolute() for path in places}) < len(places):
        raise ValueError(f"{' and '.join(outputs)} name the same file")
    page = outputs.get("--report")
    if page is not None and (ending := Path(page).suffix) and ending.lower() not in (".html", ".htm"):
        raise ValueError(
            f"a report is an HTML page, but {page} ends in {ending}: name a file that ends in .html; a "
            "browser can print it as PDF"
        )


def _check_output(out: Path, force: bool, inputs: Sequence[Path]) -> None:
    if out.is_dir():
        raise ValueError(f"{out} is a folder: name a file in it")
    if out.exists() and not out.is_file():  # moving a file to its place would remove it
        raise ValueError(f"{out} is a pipe or a device: name a file; predictions can also go to -")
    if out.exists() and any(source.exists() and out.samefile(source) for source in inputs):
        raise ValueError(f"{out} is also an input: name another file to write to")
    if out.exists() and not force:
        raise ValueError(f"{out} already exists: name another file, or overwrite it with --force")
    folder = next(folder for folder in out.absolute().parents if folder.exists())
    try:
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise ValueError(
            f"cannot write {out}: no file can be created in {folder} ({error.strerror})"
        ) from error


def write_outputs(contents: Mapping[Path, Content], quiet: bool) -> None:
    """Write files, all of them or none, and print their names."""
    from tailwise.writing import write_together

    def writer(content: Content) -> Callable[[Path], object]:
        return content if callable(content) else lambda part: part.write_text(content, encoding="utf-8")

    write_together({path: writer(content) for path, content in contents.items()})
    for path in contents:
        note(f"wrote {path}", quiet)


def checkpoint_path(out: Path) -> Path:
    """Return the file that keeps unfinished work for the output `out`."""
    return out.with_name(f"{out.name}.checkpoint")


@contextmanager
def resumable(kept: Path | None) -> Iterator[None]:
    """Remove a checkpoint at the end; say of an interruption or a full disk whether work can resume."""
    ray = None if kept is None else kept.with_name(f"{kept.name}.ray")  # where its workers keep theirs
    try:
        yield
    except KeyboardInterrupt as stop:
        if kept is None:
            stop.args = ("nothing was kept; with --out the same command could resume",)
        elif kept.exists() or (ray is not None and ray.exists()):
            stop.args = (f"no output was written; the same command resumes from {kept}",)
        else:
            stop.args = ("nothing was written",)
        raise
    except OSError as error:
        if kept is not None and kept.exists():
            error.add_note(f"the same command resumes from {kept}")
        raise
    if kept is None or ray is None:
        return
    for path in kept.parent.glob(f"{glob.escape(kept.name)}*"):  # further networks have .1, .2 and so on
        if path.name == kept.name or path.name.removeprefix(f"{kept.name}.").isdigit():
            path.unlink(missing_ok=True)
    shutil.rmtree(ray, ignore_errors=True)


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
    return shlex.join(["tailwise", *sys.argv[1:]])


def print_words(text: str) -> None:
    """Print sentences, wrapped at words and indented alike on a terminal, and as one line elsewhere."""
    from rich.console import Console
    from rich.padding import Padding
    from rich.text import Text

    if sys.stdout.isatty():
        words = text.lstrip(" ")
        Console().print(Padding.indent(Text(printable(words)), len(text) - len(words)))
    else:
        typer.echo(printable(text))


def print_json(data: Any) -> None:
    """Print results as JSON; a number that is not finite becomes null."""
    typer.echo(json.dumps(_plain_data(data), indent=2, allow_nan=False))


def _plain_data(value: Any) -> Any:
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

    columns = [[printable(cell) for cell in cells] for cells in zip(header, *rows, strict=True)]
    widths = [max(map(len, cells)) + 2 for cells in columns]
    console = Console(width=None if sys.stdout.isatty() else sum(widths))
    start = names
    while start < len(columns):
        end, used = start + 1, sum(widths[:names]) + widths[start]
        while end < len(columns) and used + widths[end] <= console.width:
            used, end = used + widths[end], end + 1
        shown = [*columns[:names], *columns[start:end]]
        about = Text(printable(title)) if start == names else None
        table = Table(*(cells[0] for cells in shown), box=None, title=about)
        for row in zip(*(cells[1:] for cells in shown), strict=True):
            table.add_row(*map(Text, row))  # Text, because a name in brackets is not markup
        console.print(table)
        start = end
