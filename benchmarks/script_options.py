"""Options that scripts of this folder share, so that they are spelled and explained alike."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

BESIDE = "write the page beside the results"


def script_parser(
    about: str | None,
    *,
    seeds: int | Sequence[int] | None = None,
    rows: int | None = None,
    tables: bool = False,
    workers: int | None = None,
    results: Path | None = None,
    write: str | None = None,
) -> argparse.ArgumentParser:
    """Return a parser with the docstring as its help and each shared option that has a default here.

    A single `seeds` is their number; several are the seeds themselves. `write` says what ``--write`` does.
    """
    parser = argparse.ArgumentParser(description=about, formatter_class=argparse.RawTextHelpFormatter)
    if isinstance(seeds, int):
        parser.add_argument("--seeds", type=int, default=seeds, help="number of seeds")
    elif seeds is not None:
        parser.add_argument("--seeds", type=int, nargs="+", default=list(seeds))
    if rows is not None:
        parser.add_argument("--rows", type=int, default=rows, help="maximum number of training rows")
    if tables:
        parser.add_argument("--data", default="", help="comma-separated tables; all by default")
    if workers is not None:
        parser.add_argument("--workers", type=int, default=workers, help="number of processes")
    if results is not None:
        parser.add_argument("--results", type=Path, default=results, help="continued if it exists")
    if write is not None:
        parser.add_argument("--write", action="store_true", help=write)
    return parser


def show(text: str, options: argparse.Namespace) -> None:
    """Print a page, and with ``--write`` write it beside the results."""
    print(text)
    if options.write:
        options.results.with_suffix(".md").write_text(text, encoding="utf-8")
