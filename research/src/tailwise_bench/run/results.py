"""Results files (JSON lines, one per finished run), and which runs may share a file."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from tailwise.writing import append_line
from tailwise_bench.data.recipe import Recipe
from tailwise_bench.run.contenders import Contender

Record = dict[str, Any]
Run = tuple[str, str, int]
"""What a line is found by: data, method and seed."""


class ResultsFile:
    """A file with one JSON object per line, to which lines are only appended.

    An unfinished last line, as a kill leaves it, is dropped; a broken line elsewhere is an error.
    """

    def __init__(self, path: Path) -> None:
        if path.is_dir():
            raise ValueError(f"{path} is a folder: name the results file in it")
        for parent in path.parents:
            if parent.is_file():
                raise ValueError(f"{parent} is a file, so {path.name} cannot be in it: name another folder")
        self.path = path
        self.records: list[Record] = []
        content = path.read_bytes() if path.is_file() else b""
        for number, line in enumerate(content[: content.rfind(b"\n") + 1].splitlines(), start=1):
            try:
                self.records.append(json.loads(line))
            except ValueError:
                raise ValueError(
                    f"{path}, line {number} is not JSON: delete that line, or name another file"
                ) from None

    def append(self, record: Record) -> None:
        """Append a line and wait until it is on the disk."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        text = json.dumps(record, allow_nan=False)
        append_line(self.path, text.encode())
        self.records.append(json.loads(text))


def _run_of(record: Record) -> Run:
    return record["data"], record["method"], record["seed"]


def finished_runs(records: Iterable[Record]) -> dict[Run, Record]:
    """Return the last line without an error of each (data, method, seed)."""
    return {_run_of(r): r for r in records if "error" not in r}


_RUN = ("data", "method", "seed", "recipe", "digest", "metrics")
"""Keys that the line of a finished run has."""


def _runs_of(path: Path) -> list[Record]:
    """Read a results file; a line that is not a run is an error with its number."""
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
    """Return all finished runs of some files; of a run that occurs twice, the last line counts."""
    return list(finished_runs(record for path in paths for record in _runs_of(path)).values())


def check_comparable(
    records: Iterable[Record],
    recipe: Recipe,
    path: Path,
    contenders: Sequence[Contender] = (),
    suite: str | None = None,
) -> None:
    """Raise an error if a file has runs of another suite or recipe, or of a contender with other options."""
    ours = json.loads(json.dumps(recipe.describe()))
    fixed = {contender.name: json.loads(json.dumps(dict(contender.fixed))) for contender in contenders}
    for record in records:
        there = record.get("suite")
        if suite and there and there != suite:
            raise ValueError(
                f"{path} has runs of the suite {there!r}, not {suite!r}: name another file or folder"
            )
        before, now = record.get("fixed", {}), fixed.get(record["method"])
        if now is not None and before != now:
            raise ValueError(
                f"{path} has runs of {record['method']} with {before}, not {now}: use the same options or "
                "name another file"
            )
        if record["recipe"].get("weights") != ours.get("weights"):
            words = {None: "each method's own weights", "sqinv": "SQINV weights for all methods"}
            raise ValueError(
                f"{path} has runs with {words[record['recipe'].get('weights')]}, not with "
                f"{words[ours.get('weights')]}: name another file or folder"
            )
        for name, value in record["recipe"].items():
            if ours.get(name) != value:
                raise ValueError(
                    f"{path} has runs with {name} = {value}, not {ours.get(name)}: use the same "
                    "recipe or name another file"
                )
