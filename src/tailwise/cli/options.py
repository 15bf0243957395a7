"""Options that commands share, and the TOML file that may give them."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any

import typer

from tailwise.core.lookup import nearest


def _configured(ctx: typer.Context, path: Path | None) -> Path | None:
    """Take defaults for the command's options from a TOML file; flags given on the line win."""
    if path is None or ctx.resilient_parsing:
        return path
    import tomllib

    try:
        with path.open("rb") as file:
            values = tomllib.load(file)
    except tomllib.TOMLDecodeError as error:
        raise ValueError(f"{path} is not valid TOML: {error}") from None
    except UnicodeDecodeError:
        raise ValueError(f"{path} is not text in UTF-8") from None
    known = {_key(p): p for p in ctx.command.params if p.name not in (None, "config", "help")}
    defaults: dict[str, Any] = {}
    for key, value in values.items():
        name = key.replace("-", "_")
        if name not in known:
            raise ValueError(f"{path}: unknown key {key!r}{nearest(name, known)}")
        parameter = known[name]
        repeated = bool(getattr(parameter, "multiple", False))
        defaults[str(parameter.name)] = _as_given(value, repeated=repeated)
    ctx.default_map = {**(ctx.default_map or {}), **defaults}
    return path


def _key(parameter: Any) -> str:
    """What a parameter is called on the command line: ``json`` for ``--json``."""
    named = [name[2:].replace("-", "_") for name in parameter.opts if name.startswith("--")]
    return str(named[0] if named else parameter.name)


def _as_given(value: Any, *, repeated: bool) -> Any:
    """A TOML value as the command line would have it."""
    if isinstance(value, Mapping):
        value = [f"{k}={v}" for k, v in value.items()]
    if repeated:
        return [str(item) for item in value] if isinstance(value, list) else [str(value)]
    if not isinstance(value, list):
        return value
    line = io.StringIO()
    csv.writer(line, lineterminator="").writerow(value)
    return line.getvalue()


Config = Annotated[
    Path | None,
    typer.Option(
        "--config", is_eager=True, callback=_configured, help="TOML file with values for these options."
    ),
]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Say nothing but results and errors.")]
Json = Annotated[bool, typer.Option("--json", help="Print results as JSON.")]
Force = Annotated[bool, typer.Option("--force", help="Overwrite outputs that exist.")]
Table = Annotated[
    str,
    typer.Argument(metavar="FILE", help="CSV (any delimiter, gzip or not) or Parquet; - is standard input."),
]
Model = Annotated[Path, typer.Argument(metavar="MODEL", help="File that `tailwise fit` wrote.")]
Target = Annotated[list[str], typer.Option("--target", "-t", help="Column to predict.")]
Targets = Annotated[
    list[str], typer.Option("--target", "-t", help="Column to predict; give it again for several at once.")
]
Drop = Annotated[
    str,
    typer.Option("--drop", help="Columns to leave out, with commas between; names that hold one in quotes."),
]
Report = Annotated[Path | None, typer.Option("--report", help="HTML page to write.")]
Coverage = Annotated[
    float, typer.Option(min=0.01, max=0.999, help="Share of labels that intervals should hold.")
]
Seed = Annotated[int, typer.Option(min=0, help="The same seed gives the same numbers.")]


def split_names(text: str) -> list[str]:
    """``'a, b, "c, d"'`` as a list of names, each once."""
    names = next(csv.reader([text], skipinitialspace=True), [])
    return list(dict.fromkeys(name.strip() for name in names if name.strip()))


def bins_from(text: str | None) -> int | list[float] | None:
    """``"50"`` as a number of bins, ``"0,1,10,100"`` as their edges."""
    if text is None:
        return None
    numbers = [_finite(part.strip()) for part in text.split(",")]
    if len(numbers) == 1:
        count = numbers[0]
        if count < 1 or not count.is_integer():
            raise ValueError(
                f"--bins {text}: one number is how many bins there are, a whole one of at least 1; edges are "
                "at least two, with commas between, such as 0,1,10,100"
            )
        return int(count)
    for low, high in pairwise(numbers):
        if not low < high:
            raise ValueError(f"--bins: edges must increase, but {low:.12g} is followed by {high:.12g}")
    return numbers


def _finite(text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not math.isfinite(number):
        raise ValueError(
            "--bins takes a number of bins, or edges with commas between, such as 0,1,10,100: "
            f"{text!r} is not a finite number"
        )
    return number


def only_target(targets: Sequence[str]) -> str:
    """The target of a command that takes one; click would silently take the last of several."""
    if len(targets) > 1:
        raise ValueError(f"this command takes one --target at a time, not {' and '.join(map(repr, targets))}")
    return targets[0]
