"""The registry of cases, their outputs as plain values, and how two records differ.

A case is a function of an empty folder. It returns what users see: numbers, texts and tables, by name.
"""

from __future__ import annotations

import math
import tempfile
import warnings
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch

Case = Callable[[Path], Mapping[str, Any]]
Record = dict[str, Any]
"""Numbers, texts and nested lists of them, by name."""
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
        pairs = list(_pairs(recorded[name], value))
        differ = [pair for pair in pairs if not _equal(*pair)]
        if differ:
            was, now = _from_where_they_differ(*differ[0])
            lines.append(f"{name}: {len(differ)} of {len(pairs)} differ, such as {now!r}, recorded {was!r}")
    return lines


def _pairs(was: Any, now: Any) -> Iterator[tuple[Any, Any]]:
    """Yield the entries of two lists side by side; lists of different lengths are one pair."""
    if isinstance(was, list) and isinstance(now, list) and len(was) == len(now):
        for pair in zip(was, now, strict=True):
            yield from _pairs(*pair)
    else:
        yield was, now


def _equal(was: Any, now: Any) -> bool:
    if isinstance(was, (int, float)) and isinstance(now, (int, float)):
        both_nan = math.isnan(was) and math.isnan(now)
        return both_nan or math.isclose(was, now, rel_tol=1e-6, abs_tol=1e-9)
    return bool(was == now)


def _from_where_they_differ(was: Any, now: Any) -> tuple[Any, Any]:
    if not (isinstance(was, str) and isinstance(now, str)):
        return was, now
    alike = [one == two for one, two in zip(was, now, strict=False)]
    at = max([*alike, False].index(False) - 30, 0)
    return was[at : at + 90], now[at : at + 90]
