"""Golden cases of the command line."""

from __future__ import annotations

import contextlib
import json
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from unittest import mock

import pandas as pd

from tailwise import __version__
from tests.command_line import invoke
from tests.golden import tables
from tests.golden.recording import case

VOLATILE = ("seconds", "machine", "version", "trace")
QUICK = ["--base", "none", "--folds", 2, "--epochs", 2]


def said(*arguments: object) -> Any:
    """Return the JSON that a command prints, without times, versions and machines."""
    result = invoke(*arguments, "--json", "--quiet")
    assert result.exit_code == 0, result.output
    return _lasting(json.loads(result.stdout))


def _lasting(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {name: _lasting(inner) for name, inner in value.items() if name not in VOLATILE}
    return [_lasting(inner) for inner in value] if isinstance(value, list) else value


@contextlib.contextmanager
def files(folder: Path) -> Any:
    """Work in a folder with a table, so that no path of it is printed."""
    X, y = tables.columns(240)
    table = X[["size", "kind", "place", "day"]].assign(price=y.round(3))
    table[:180].to_csv(folder / "table.csv", index=False)
    table[180:].to_csv(folder / "new.csv", index=False)
    with contextlib.chdir(folder), mock.patch.object(sys, "argv", ["tailwise"]):  # a page prints them
        yield


def texts(page: str) -> list[str]:
    """Return the texts of a page, also those in its charts."""
    parts = (
        re.sub(r"(?s)<(style|script).*?</\1>|<[^>]+>", "\n", page).replace(__version__, "VERSION").split("\n")
    )
    return [part.strip() for part in parts if part.strip()]


@case
def command_fit(folder: Path) -> dict[str, Any]:
    """Fit, predict, evaluate, explain and recalibrate one model, and write its page."""
    with files(folder):
        found = {"fit": said("fit", "table.csv", "-t", "price", "-o", "m.tailwise", *QUICK)}
        found["predict"] = said("predict", "m.tailwise", "new.csv", "-o", "p.csv", "--keep", "kind")
        found["predictions"] = pd.read_csv("p.csv")[:8]
        found["evaluate"] = said("evaluate", "m.tailwise", "new.csv", "--by", "kind", "--emphasis", 0.5)
        found["explain"] = said(
            "explain", "m.tailwise", "new.csv", "-o", "e.csv", "--row", 0, "--background-rows", 5
        )
        found["explanations"] = pd.read_csv("e.csv")
        found["recalibrate"] = said("recalibrate", "m.tailwise", "new.csv", "-o", "r.tailwise")
        found["again"] = said("evaluate", "m.tailwise", "new.csv", "--against", "r.tailwise")
        said("evaluate", "m.tailwise", "new.csv", "--report", "page.html")
        found["page"] = texts((folder / "page.html").read_text())
    return found


@case
def command_compare(folder: Path) -> dict[str, Any]:
    with files(folder):
        arguments = ["--methods", "vanilla,vir-dial", "--seeds", 1, "--epochs", 2]
        return {
            "networks": said("compare", "table.csv", "-t", "price", *arguments),
            "balanced": said("compare", "table.csv", "-t", "price", *arguments, "--balanced"),
        }


@case
def command_diagnose(folder: Path) -> dict[str, Any]:
    with files(folder):
        return dict(said("diagnose", "table.csv", "-t", "price"))
