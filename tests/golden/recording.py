"""The registry of cases, their outputs as plain values, the recorded file, and how two records differ.

A case is a function of an empty folder. It returns what users see: numbers, texts and tables, by name.
"""

from __future__ import annotations

import hashlib
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
from torch import nn

Case = Callable[[Path], Mapping[str, Any]]
Record = dict[str, Any]
"""Numbers, texts and nested lists of numbers, by name."""

FILE = Path(__file__).parent / "golden.json"
RELATIVE, FLOOR = 1e-6, 1e-9
"""Numbers are equal if they differ by at most RELATIVE of the recorded one, plus FLOOR."""
DIGITS = 10
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
        elif not np.allclose(two, one, rtol=RELATIVE, atol=FLOOR, equal_nan=True):
            close = np.isclose(two, one, rtol=RELATIVE, atol=FLOOR, equal_nan=True)
            with np.errstate(all="ignore"):
                worst = np.nanmax(np.abs(two - one)[~close] / np.abs(one)[~close], initial=0)
            first = two[~close].flat[0], one[~close].flat[0]
            lines.append(
                f"{name}: {(~close).sum()} of {close.size} numbers differ, by up to {worst:.1e} of their "
                f"value, such as {first[0]:.9g}, recorded {first[1]:.9g}"
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


def canary() -> dict[str, str]:
    """Return the last bits of small computations, which differ between processors and versions.

    Training in float32 makes such differences visible in every digit that the cases record.
    """
    rng = np.random.default_rng(0)
    x, pictures = rng.normal(size=(160, 7)), rng.normal(size=(8, 3, 32, 32))
    y = np.exp(x[:, 0])
    return {
        "torch": _bits(_trained(x, y), _convolved(pictures)),
        "numpy": _bits(x @ x[:50].T, np.linalg.svd(x)[0], np.log1p(y)),
        "catboost": _bits(_boosted(x, y)),
    }


def _bits(*arrays: Any) -> str:
    return hashlib.sha256(b"".join(np.ascontiguousarray(a).tobytes() for a in arrays)).hexdigest()[:16]


def _trained(x: Any, y: Any) -> Any:
    generator = torch.Generator().manual_seed(0)
    network = nn.Sequential(nn.Linear(7, 48), nn.ReLU(), nn.Linear(48, 24), nn.Tanh(), nn.Linear(24, 1))
    for parameter in network.parameters():
        parameter.data = torch.randn(parameter.shape, generator=generator) / 5
    optimizer = torch.optim.AdamW(network.parameters(), lr=0.01)
    inputs, labels = torch.from_numpy(x).float(), torch.from_numpy(y).float()
    for _ in range(5):
        for rows in torch.randperm(len(x), generator=generator).split(32):
            optimizer.zero_grad()
            nn.functional.softplus(network(inputs[rows])[:, 0] - labels[rows]).mean().backward()
            optimizer.step()
    return network(inputs).detach().numpy()


def _convolved(pictures: Any) -> Any:
    generator = torch.Generator().manual_seed(0)
    kernel = torch.randn((16, 3, 7, 7), generator=generator, requires_grad=True)
    out = nn.functional.conv2d(torch.from_numpy(pictures).float(), kernel, stride=2, padding=3)
    out.square().mean().backward()
    return kernel.grad.numpy()


def _boosted(x: Any, y: Any) -> Any:
    from catboost import CatBoostRegressor

    model = CatBoostRegressor(
        iterations=40, random_seed=0, thread_count=1, verbose=False, allow_writing_files=False
    )
    return model.fit(x, y).predict(x)


def write(path: Path, records: Mapping[str, Record], digits: int | None = None) -> None:
    """Write the canary and records, one value per line; rounded to significant digits unless None."""

    def rounded(value: Any) -> Any:
        if isinstance(value, list):
            return [rounded(v) for v in value]
        return value if digits is None or not isinstance(value, float) else float(f"{value:.{digits}g}")

    blocks = [("canary", canary()), *records.items()]
    texts = []
    for name, record in blocks:
        lines = [f" {json.dumps(key)}: {json.dumps(rounded(value))}" for key, value in record.items()]
        texts.append(f"{json.dumps(name)}: {{\n" + ",\n".join(lines) + "\n}")
    path.write_text("{\n" + ",\n".join(texts) + "\n}\n")


def read(path: Path = FILE) -> dict[str, Record]:
    """Return the canary, under its name, and the record of each case."""
    content: dict[str, Record] = json.loads(path.read_text())
    return content
