"""What the commands of `cli` do once their options are read: read, train, score, tell and write.

Nothing heavy is imported before a function needs it.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

if TYPE_CHECKING:
    import pandas as pd

    from tailwise.estimator import TailRegressor
    from tailwise.report.evidence import Scored
    from tailwise.report.verdict import Verdict

Labelled = tuple["pd.DataFrame", "pd.Series[float]"]
STOPPED = 130
"""Exit code after Ctrl-C."""
CHECKPOINT = ".checkpoint"
"""What a run that was stopped leaves beside its output, to go on from."""


def note(text: str, quiet: bool = False) -> None:
    """Say something that is not a result."""
    if not quiet:
        typer.echo(text, err=True)


def print_json(data: Any) -> None:
    """Print results as JSON."""
    import json

    typer.echo(json.dumps(plain_data(data), indent=2, allow_nan=False))


def plain_data(value: Any) -> Any:
    """Numbers, strings, lists and mappings; what is not a finite number becomes null."""
    if isinstance(value, Mapping):
        return {str(key): plain_data(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain_data(item) for item in value]
    if hasattr(value, "item"):
        value = value.item()
    if isinstance(value, float) and not abs(value) < float("inf"):
        return None
    return str(value) if isinstance(value, Path) else value


def split_names(text: str) -> list[str]:
    """``"a, b"`` as a list of names."""
    return [name.strip() for name in text.split(",") if name.strip()]


def read(source: str, quiet: bool) -> pd.DataFrame:
    """Read a table and say what of it was left out."""
    from tailwise.table_files import read_table

    table = read_table(source)
    unnamed = table.attrs.pop("unnamed", 0)
    if unnamed:
        note(f"note: {unnamed} column{'s' if unnamed > 1 else ''} without a name left out", quiet)
    return table


def read_labelled(source: str, target: str, drop: str, quiet: bool) -> tuple[pd.DataFrame, pd.Series[float]]:
    """Read a table as inputs and target; say what was left out and what may give the target away."""
    from tailwise.table_files import near_copies, split_target

    inputs, labels, missing = split_target(read(source, quiet), target, source, split_names(drop))
    if missing:
        note(f"note: {missing} rows of {source} without a value in {target!r} left out", quiet)
    for column in near_copies(inputs, labels):
        note(
            f"note: column {column!r} is nearly the target {target!r}: if it is not known before the target "
            f"is, leave it out with --drop {column}",
            quiet,
        )
    return inputs, labels


def show_progress(quiet: bool) -> None:
    """Plain lines for a log; on a terminal the training shows a bar instead."""
    import logging

    logger = logging.getLogger("tailwise")
    logger.handlers.clear()
    if not quiet:
        handler = logging.StreamHandler()
        handler.setFormatter(logging.Formatter("%(message)s"))
        logger.addHandler(handler)
        logger.setLevel(logging.INFO)
        logger.propagate = False


def save_picture(figure: Any, path: Path) -> None:
    """Write a chart in the format its name asks for."""
    from tailwise.files import write_atomically

    kind = path.suffix.lstrip(".").lower() or "png"
    if kind not in figure.canvas.get_supported_filetypes():
        raise ValueError(f"cannot draw {path}: use .png, .svg or .pdf")
    write_atomically(path, lambda part: figure.savefig(part, format=kind, dpi=150))


def same_columns(
    labelled: tuple[pd.DataFrame, pd.Series[float]], inputs: pd.DataFrame, name: str
) -> tuple[pd.DataFrame, pd.Series[float]]:
    """Labelled rows with the columns of others, in their order."""
    from tailwise.table_files import check_column

    for column in inputs.columns:
        check_column(labelled[0], column, name)
    return labelled[0][list(inputs.columns)], labelled[1]


def keep_aside(
    inputs: pd.DataFrame, labels: pd.Series[float], share: float, seed: int, quiet: bool
) -> tuple[Labelled, Labelled | None]:
    """Rows to train on, and rows to measure on: the same share of every label bin."""
    import numpy as np

    from tailwise.data import label_holdout

    rows = label_holdout(labels.to_numpy(), share=share, seed=seed) if share > 0 else np.zeros(0, np.int64)
    if len(rows) == 0:
        if share > 0:
            note("note: too few rows to keep any aside; nothing is measured", quiet)
        return (inputs, labels), None
    rest = np.setdiff1d(np.arange(len(labels)), rows)

    def taken(which: Any) -> Labelled:
        return inputs.iloc[which].reset_index(drop=True), labels.iloc[which].reset_index(drop=True)

    return taken(rest), taken(rows)


def method_options_from(pairs: Sequence[str]) -> dict[str, Any] | None:
    """``["regularizer=0.01", "weights.power=1"]`` as nested options with numbers as numbers."""
    import json

    options: dict[str, Any] = {}
    for pair in pairs:
        key, equals, text = pair.partition("=")
        if not equals or not key.strip():
            raise ValueError(f"--option takes NAME=VALUE, such as regularizer=0.01, not {pair!r}")
        try:
            value = json.loads(text.lower() if text in ("True", "False", "None") else text)
        except ValueError:
            value = None if text == "none" else text
        part, dot, inner = key.strip().partition(".")
        if dot:
            options.setdefault(part, {})[inner] = value
        else:
            options[part] = value
    return options or None


def checkpoint_of(out: Path, suffix: str) -> Path:
    """Where a run that is stopped is kept."""
    return out.with_name(out.name + suffix + CHECKPOINT)


def train(
    settings: Mapping[str, Any],
    inputs: pd.DataFrame,
    labels: pd.Series[float],
    held: Labelled | None,
    out: Path,
    suffix: str,
    quiet: bool,
) -> TailRegressor:
    """Fit a model; stopped with Ctrl-C, it says how to go on."""
    from tailwise.estimator import TailRegressor

    checkpoint = checkpoint_of(out, suffix)
    if checkpoint.exists():
        note(f"going on from {checkpoint}", quiet)
    show_progress(quiet)
    try:
        return TailRegressor(**settings).fit(inputs, labels, eval_set=held, checkpoint=checkpoint)
    except KeyboardInterrupt:
        kept = f"; the same command goes on from {checkpoint}" if checkpoint.exists() else ""
        typer.echo(f"stopped: no model was written{kept}", err=True)
        raise typer.Exit(STOPPED) from None


def command_line() -> str:
    """What was typed, so that it can be typed again."""
    import shlex

    arguments = sys.argv[1:]
    return shlex.join(["tailwise", *arguments]) if arguments else "tailwise"


def write_model_page(
    path: Path,
    model: TailRegressor,
    scored: Scored,
    baseline: Scored | None,
    target: str,
    source: str,
    where: str,
    command: str,
    seconds: float = 0.0,
) -> None:
    """Write the page about a model."""
    from tailwise.files import write_atomically
    from tailwise.methods import get_method
    from tailwise.report.page import Facts, model_page

    facts = Facts(
        target=target,
        source="standard input" if source == "-" else Path(source).name,
        method=model.method,
        train_rows=int(scored.bins.counts.sum()),
        features=int(model.n_features_in_),
        command=command,
        parts=get_method(model.method).parts.with_options(**(model.method_options or {})),
        intervals=model.explain_intervals(scored.coverage),
        test_source=where,
        epochs=len(model.history_.history),
        best_epoch=model.history_.best_epoch,
        seconds=seconds,
        seed=model.random_state if isinstance(model.random_state, int) else None,
        settings={
            name: getattr(model, name) for name in ("backbone", "epochs", "batch_size", "lr", "monitor")
        },
    )
    page = model_page(scored, facts, baseline)
    write_atomically(path, lambda part: part.write_text(page, encoding="utf-8"))


def tell(
    scored: Scored | None,
    baseline: Scored | None,
    verdict: Verdict | None,
    facts: Mapping[str, Any],
    as_json: bool,
    quiet: bool,
) -> None:
    """Print figures by region and the verdict."""
    if as_json:
        both = {"regions": scored, "baseline": baseline}
        regions = {k: v.by_region().to_dict(orient="index") for k, v in both.items() if v is not None}
        said = None if verdict is None else verdict.to_dict()
        print_json({**facts, "verdict": said, **regions})
        return
    if scored is not None and verdict is not None:
        print_regions([scored] if baseline is None else [scored, baseline])
        typer.echo(verdict.text)
    for name in ("model", "report"):
        if facts.get(name) is not None:
            note(f"wrote {facts[name]}", quiet)


def print_regions(models: Sequence[Scored]) -> None:
    from rich.console import Console
    from rich.table import Table

    from tailwise.report.verdict import number

    level = f"{models[0].coverage:.0%}"
    table = Table("method", "region", "rows", "MAE", "RMSE", "NLL", f"{level} coverage", "width", box=None)
    for scored in models:
        for place, (region, row) in enumerate(scored.by_region().iterrows()):
            if row["n"] == 0:
                continue
            figures = [number(row["mae"]), number(row["rmse"]), number(row["nll"])]
            shown = [f"{row['n']:.0f}", *figures, f"{row['coverage']:.1%}", number(row["width"])]
            table.add_row(scored.title if place == 0 else "", str(region), *shown)
    Console(width=None if sys.stdout.isatty() else 100).print(table)


def load_model(path: Path) -> TailRegressor:
    """Read a model, or say what is wrong with the file."""
    from tailwise.estimator import TailRegressor

    if path.is_dir():
        raise ValueError(f"{path} is a folder: name the file that `tailwise fit` wrote")
    if not path.exists():
        raise ValueError(f"{path} does not exist: name the file that `tailwise fit` wrote")
    return TailRegressor.load(path)


def inputs_of(model: TailRegressor, table: pd.DataFrame, name: str) -> pd.DataFrame:
    """The columns that the model was trained on, in its order."""
    from tailwise.table_files import check_column

    needed = [str(column) for column in getattr(model, "feature_names_in_", [])]
    for column in needed:
        try:
            check_column(table, column, name)
        except ValueError as error:
            raise ValueError(f"{error} The model was trained with it.".replace("?.", "?")) from None
    return table[needed] if needed else table


def target_of(model: TailRegressor, table: pd.DataFrame, target: str | None, name: str) -> str:
    """The target's column: as given, as the model knows it, or the only column it was not trained on."""
    known = target or getattr(model, "target_name_", None)
    if known:
        return str(known)
    inputs = {str(column) for column in getattr(model, "feature_names_in_", [])}
    others = [str(column) for column in table.columns if str(column) not in inputs]
    if len(others) == 1:
        return others[0]
    what = f"columns {', '.join(others[:6])} could be it" if others else "it has only the model's inputs"
    raise ValueError(f"which column of {name} is the target? {what}: name it with --target")


def run_all(
    table: pd.DataFrame,
    name: str,
    target: str,
    contenders: Sequence[Any],
    seeds: Sequence[int],
    recipe: Any,
    kept: Path | None,
    quiet: bool,
) -> list[dict[str, Any]]:
    """Every contender with every seed; what a stopped command finished is in `kept` and not done again."""
    from tailwise.benchmark.runs import ResultsFile, finished_runs, run_one
    from tailwise.benchmark.suites import Source, make_problem

    file = None if kept is None else ResultsFile(kept)
    done = {} if file is None else finished_runs(file.records)
    source = Source(name, target, lambda: table)
    records = []
    try:
        for seed in seeds:
            problem = make_problem(source, seed, max_rows=len(table))
            if len(problem.y_valid) == 0 or len(problem.y_test) == 0:
                raise ValueError(
                    f"{len(table)} rows are too few to compare methods on: no label bin has three rows"
                )
            for contender in contenders:
                record = done.get((name, contender.name, seed))
                if (
                    record is None
                    or record["digest"] != problem.digest
                    or record["recipe"] != recipe.describe()
                ):
                    record = run_one(contender, problem, recipe, {})
                    if file is not None:
                        file.append(record)
                records.append(record)
                error = record["metrics"]["raw"]["all"]["mae"]
                note(
                    f"{contender.title}, seed {seed}: MAE {error:.4g}, {record['seconds']['all']:.1f} s",
                    quiet,
                )
    except KeyboardInterrupt:
        kept_words = f"; the same command goes on from {kept}" if kept is not None and kept.exists() else ""
        typer.echo(f"stopped: {len(records)} runs were done{kept_words}", err=True)
        raise typer.Exit(STOPPED) from None
    return records


def write_comparison(path: Path, results: Any, title: str) -> None:
    """Write the page that ranks methods."""
    from tailwise.files import write_atomically
    from tailwise.report.page import comparison_page

    page = comparison_page(results, title=title, command=command_line())
    write_atomically(path, lambda part: part.write_text(page, encoding="utf-8"))


def print_comparison(results: Any) -> None:
    """Print a table of methods for each data set, and what it shows."""
    from rich.console import Console
    from rich.table import Table

    from tailwise.benchmark.comparison import Figure
    from tailwise.report.page import COLUMNS, comparison_verdict
    from tailwise.report.verdict import number

    console = Console(width=None if sys.stdout.isatty() else 120)
    for data in results.data:
        table = Table("method", *(Figure(m, r).name for m, r in COLUMNS), box=None, title=data)
        for method in results.methods:
            cells = []
            for metric, region in COLUMNS:
                mean, std = results.mean_std(Figure(metric, region, calibrated=True), data, method)
                cells.append("–" if mean != mean else number(mean) + ("" if std != std else f" ± {std:.2g}"))
            table.add_row(results.titles[method], *cells)
        console.print(table)
    for line in comparison_verdict(results):
        typer.echo(line)
