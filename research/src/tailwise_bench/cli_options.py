"""Options that commands of `tailwise bench` share, and what their values mean."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

RESULTS = Path("research/results")
"""Where results and pages are, unless a flag says otherwise."""


def print_line(line: str) -> None:
    """Print what a command does; standard output is for results."""
    typer.echo(line, err=True)


def _known_suite(name: str) -> str:
    from tailwise_bench import get_suite

    try:
        get_suite(name)
    except (ValueError, OSError) as error:
        raise typer.BadParameter(str(error)) from None
    return name


def parse_seeds(text: str | None) -> list[int] | None:
    """``5`` means 0 to 4; ``0,3`` means these two."""
    if text is None:
        return None
    parts = [part.strip() for part in text.split(",")]
    least = 0 if len(parts) > 1 else 1
    for part in parts:
        if not part.isdecimal() or int(part) < least:
            raise typer.BadParameter(
                f"{part!r} is not a whole number of at least {least}", param_hint="--seeds"
            )
    return [int(part) for part in parts] if len(parts) > 1 else list(range(int(text)))


def _known_weights(text: str | None) -> str | None:
    if text not in (None, "own", "sqinv"):
        raise typer.BadParameter(f"{text!r} is neither own nor sqinv")
    return text


_SUITES = (
    "tabular, development, quick, stsb-paper, stsb-modern, utkface, agedb-paper, imdb-wiki-paper, "
    "nyuv2-small, nyud2-paper, or a TOML file with a suite of your own."
)
SuiteArgument = Annotated[
    str, typer.Argument(callback=_known_suite, help=f"Data sets to compare on: {_SUITES}")
]
SuiteOption = Annotated[str, typer.Option("--suite", callback=_known_suite, help=f"Data sets: {_SUITES}")]
Seeds = Annotated[
    str,
    typer.Option(
        metavar="N", help="Number of seeds, or a list of them: 5 means 0 to 4; 0,3 means these two."
    ),
]
Workers = Annotated[
    int, typer.Option(metavar="N", min=1, help="Number of worker processes, one thread each.")
]
Epochs = Annotated[
    int | None, typer.Option(metavar="N", min=1, help="Maximum number of epochs; by default the suite's.")
]
Trials = Annotated[
    int | None,
    typer.Option(metavar="N", min=1, help="Configurations to try per method; by default the suite's."),
]
Weights = Annotated[
    str | None,
    typer.Option(
        metavar="own|sqinv", callback=_known_weights,
        help="`sqinv` gives all methods the paper's label weights; `bench suite` names its files after it.",
    ),
]  # fmt: skip
TimeLimit = Annotated[
    float | None,
    typer.Option(
        metavar="SECONDS", min=0, help="Stop after this many seconds; the same command continues later."
    ),
]
Methods = Annotated[
    str,
    typer.Option(
        help="Comma-separated names. `all`, `peers` and `ablation-lambda`, `-bins`, ... are groups."
    ),
]
Prepared = Annotated[Path, typer.Option(metavar="FOLDER", help="Folder written by `tailwise-bench prepare`.")]
Work = Annotated[Path, typer.Option(metavar="FOLDER", help="Folder for prepared data.")]
