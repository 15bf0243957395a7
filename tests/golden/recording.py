"""The registry of cases, their outputs as plain values, and how two records differ.

A case is a function of an empty folder. It returns what users see: numbers, texts and tables, by name.
"""

from __future__ import annotations

import json
import tempfile
import warnings
from collections.abc import Callable, Iterator, Mapping
from itertools import zip_longest
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch

Case = Callable[[Path], Mapping[str, Any]]
Record = dict[str, Any]
"""Numbers, texts and nested lists of numbers, by name."""

RELATIVE, FLOOR = 1e-6, 1e-9
"""Numbers are equal if they differ by at most RELATIVE of the recorded one, plus FLOOR."""
CASES: dict[str, Case] = {}


def case(function: Case) -> Case:
    """Register a case under its name, with hyphens."""
    return add_case(function.__name__.replace("_", "-"), function)


def add_case(name: str, function: Case) -> Case:
    """Register a case under a name."""
    assert name not in CASES, name
    CASES[name] = function
    return function


def run(name: str) -> Record:
    """Return the outputs of a case."""
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return dict(_flat(CASES[name](Path(folder))))


def _flat(value: Any, name: str = "") -> Iterator[tuple[str, Any]]:
    """Yield numbers, lists of numbers and texts by the path of their names."""
    if isinstance(value, pd.DataFrame):
        value = {str(column): value[column].tolist() for column in value}
    if isinstance(value, Mapping):
        for key, inner in value.items():
            yield from _flat(inner, f"{name}/{key}".removeprefix("/"))
    elif isinstance(value, (list, tuple)) and any(isinstance(v, (Mapping, pd.DataFrame)) for v in value):
        yield from _flat(dict(enumerate(value)), name)
    else:
        yield name, _plain(value)


def _plain(value: Any) -> Any:
    """Return a number, a list of numbers, or texts."""
    if isinstance(value, torch.Tensor):
        value = value.detach().double().numpy()
    if isinstance(value, (np.ndarray, np.generic, pd.Series, pd.Index)):
        value = value.tolist()
    if isinstance(value, (list, tuple)):
        entries = [_plain(entry) for entry in value]
        texts = any(isinstance(entry, str) and entry != "None" for entry in entries)
        return [str(e) if texts else np.nan if isinstance(e, str) else e for e in entries]
    return value if isinstance(value, (int, float)) else str(value)


def differences(recorded: Record, found: Record) -> list[str]:
    """Return one line for each name whose value is missing, new or another one."""
    lines = [f"{name} is missing" for name in recorded if name not in found]
    for name, value in found.items():
        if name not in recorded:
            lines.append(f"{name} is not recorded")
            continue
        was = recorded[name]
        if _texts(was) or _texts(value):
            if was != value:
                one, two = _where(was, value)
                lines.append(f"{name}: {two!r}, recorded {one!r}")
            continue
        one, two = np.asarray(was, np.float64), np.asarray(value, np.float64)
        if one.shape != two.shape:
            lines.append(f"{name}: shape {two.shape}, recorded {one.shape}")
            continue
        apart = ~np.isclose(two, one, rtol=RELATIVE, atol=FLOOR, equal_nan=True)
        if apart.any():
            old, new = one[apart], two[apart]
            with np.errstate(all="ignore"):
                worst = np.nanmax(np.abs(new - old) / np.abs(old), initial=0)
            lines.append(
                f"{name}: {apart.sum()} of {apart.size} numbers differ, by up to {worst:.1e} of their value, "
                f"such as {new[0]:.9g}, recorded {old[0]:.9g}"
            )
    return lines


def _where(was: Any, value: Any) -> tuple[Any, Any]:
    """Return the first entries that differ, or the parts of two texts from where they differ."""
    if isinstance(was, list) and isinstance(value, list):
        pairs = zip_longest(was, value, fillvalue="no entry")
        return next(_where(*pair) for pair in pairs if pair[0] != pair[1])
    if not (isinstance(was, str) and isinstance(value, str)):
        return was, value
    letters = enumerate(zip_longest(was, value))
    at = max(next(place for place, (one, two) in letters if one != two) - 30, 0)
    return was[at : at + 90], value[at : at + 90]


def _texts(value: Any) -> bool:
    return isinstance(value, str) or (isinstance(value, list) and any(map(_texts, value)))


def write(path: Path, records: Mapping[str, Record]) -> None:
    """Write records with all digits, one value per line."""
    texts = []
    for name, record in records.items():
        lines = [f" {json.dumps(key)}: {json.dumps(value)}" for key, value in record.items()]
        texts.append(f"{json.dumps(name)}: {{\n" + ",\n".join(lines) + "\n}")
    path.write_text("{\n" + ",\n".join(texts) + "\n}\n")
