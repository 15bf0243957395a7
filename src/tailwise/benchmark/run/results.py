"""results.jsonl: a line for every finished run, and which runs may stand in one file."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from tailwise.benchmark.run.contenders import Contender, Recipe

Record = dict[str, Any]


class ResultsFile:
    """results.jsonl: one JSON object per line, only ever appended to.

    A last line that a kill left unfinished is dropped; a broken line elsewhere is an error.
    """

    def __init__(self, path: Path) -> None:
        if path.is_dir():
            raise ValueError(f"{path} is a folder: name the results file in it")
        for parent in path.parents:
            if parent.is_file():
                raise ValueError(f"{parent} is a file, not a folder for {path.name}: name another")
        self.path = path
        self.records: list[Record] = []
        self._torn_at: int | None = None
        if path.is_file():
            self._read()

    def _read(self) -> None:
        content = self.path.read_bytes()
        whole = content[: content.rfind(b"\n") + 1]
        for number, line in enumerate(whole.splitlines(), start=1):
            try:
                self.records.append(json.loads(line))
            except ValueError:
                raise ValueError(
                    f"{self.path}, line {number} is not JSON: delete that line, or name another file"
                ) from None
        if len(whole) < len(content):
            self._torn_at = len(whole)

    def append(self, record: Record) -> None:
        """Add a line and wait until it is on the disk."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self.path.open("ab") as file:
            if self._torn_at is not None:  # only now: reading alone changes no file
                file.truncate(self._torn_at)
                self._torn_at = None
            file.write((json.dumps(record, allow_nan=False) + "\n").encode())
            file.flush()
            os.fsync(file.fileno())
        self.records.append(record)


def finished_runs(records: Iterable[Record]) -> dict[tuple[str, str, int], Record]:
    """The last good line of each (data, method, seed)."""
    return {(r["data"], r["method"], r["seed"]): r for r in records if "error" not in r}


_RUN = ("data", "method", "seed", "recipe", "digest", "metrics")
"""What a line has to hold to be a finished run."""


def _runs_of(path: Path) -> list[Record]:
    """Read a results file; lines that are something else's are an error that names the first."""
    records = ResultsFile(path).records
    if not path.is_file():
        raise FileNotFoundError(f"{path} does not exist")
    for number, record in enumerate(records, start=1):
        lacking = [key for key in _RUN if not isinstance(record, dict) or key not in record]
        if lacking and not (isinstance(record, dict) and "error" in record):
            raise ValueError(
                f"{path} is not a results file of `tailwise compare` or `tailwise bench`: a line lacks "
                f"{lacking[0]!r} (line {number})"
            )
    return records


def read_results(*paths: Path) -> list[Record]:
    """All finished runs of some files; a run that occurs twice is taken from where it occurs last."""
    return list(finished_runs(record for path in paths for record in _runs_of(path)).values())


def check_comparable(
    records: Iterable[Record],
    recipe: Recipe,
    path: Path,
    contenders: Sequence[Contender] = (),
    suite: str | None = None,
) -> None:
    """Refuse to mix in one file runs of different suites, recipes, or fixed options of one contender."""
    ours = json.loads(json.dumps(recipe.describe()))
    fixed = {contender.name: json.loads(json.dumps(dict(contender.fixed))) for contender in contenders}
    for record in records:
        there = record.get("suite")
        if suite and there and there != suite:
            raise ValueError(
                f"{path} holds runs of the suite {there!r}, not {suite!r}: name another file or folder"
            )
        before, now = _fixed(record), fixed.get(record["method"])
        if before is not None and now is not None and before != now:
            raise ValueError(
                f"{path} holds runs of {record['method']} with {before}, not {now}: use the same options or "
                "name another file"
            )
        # Settings that older lines do not tell are taken for ours.
        for name, value in record["recipe"].items():
            if ours.get(name) != value:
                raise ValueError(
                    f"{path} holds runs with {name} = {value}, not {ours.get(name)}: use the same "
                    "recipe or name another file"
                )


def _fixed(record: Record) -> dict[str, Any] | None:
    """Options that a run had instead of the defaults; None where that is not known."""
    # Variants are named after their options (``vir[lambda=1]``), and older lines do not repeat them.
    found: dict[str, Any] | None = record.get("fixed", None if "[" in record["method"] else {})
    return found
