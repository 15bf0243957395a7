"""What the commands of `cli` do once their options are read: read, train, score and write.

Nothing heavy is imported before a function needs it.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import typer

if TYPE_CHECKING:
    import pandas as pd

    from tailwise.estimator.regressor import TailRegressor
    from tailwise.report.scoring import Scored
    from tailwise.report.verdict import Verdict

CHECKPOINT = ".checkpoint"
"""What a run that was stopped leaves beside its output, to go on from."""


class Labelled(NamedTuple):
    """Inputs and labels of the same rows, one column for each target, and their weights if they have any."""

    inputs: pd.DataFrame
    labels: pd.DataFrame
    weights: pd.Series[float] | None = None


def note(text: str, quiet: bool = False) -> None:
    """Say something that is not a result."""
    if not quiet:
        typer.echo(text, err=True)


# -- reading -------------------------------------------------------------------------------------


def name_of(source: str) -> str:
    """What a page calls a table: the name of its file."""
    return "standard input" if source == "-" else Path(source).name


def read(source: str, quiet: bool) -> pd.DataFrame:
    """Read a table and say what of it was left out."""
    from tailwise.data.tables.files import read_table

    table = read_table(source)
    unnamed = table.attrs.pop("unnamed", 0)
    if unnamed:
        note(f"note: {unnamed} column{'s' if unnamed > 1 else ''} without a name left out", quiet)
    return table


def split_labelled(
    table: pd.DataFrame,
    targets: Sequence[str],
    name: str,
    quiet: bool,
    drop: Sequence[str] = (),
    weight: str | None = None,
) -> Labelled:
    """Split a table into inputs, targets and weights; say how many rows have no label and are left out."""
    from tailwise.data.tables.columns import row_weights, split_targets

    if weight in targets:
        raise ValueError(f"column {weight!r} is the target and cannot be the weight as well")
    no_inputs = drop if weight is None else [*drop, weight]
    inputs, labels, missing = split_targets(table, targets, name, no_inputs)
    weights = None if weight is None else row_weights(table, weight, targets, name)
    if missing:
        words = " or ".join(map(repr, targets))
        note(f"note: {missing} rows of {name} without a value in {words} left out", quiet)
    return Labelled(inputs, labels, weights)


def read_labelled(
    source: str,
    targets: Sequence[str],
    drop: Sequence[str],
    quiet: bool,
    weight: str | None = None,
    like: pd.DataFrame | None = None,
) -> Labelled:
    """Read a table as inputs and targets; say what was left out and what may be other than it looks.

    The inputs are the columns of `like`, in its order, or all that are left.
    """
    from tailwise.data.tables.columns import (
        check_column,
        check_infinity,
        id_columns,
        near_copies,
        numbers_as_text,
    )

    table = read(source, quiet)
    inputs, labels, weights = split_labelled(table, targets, source, quiet, drop, weight)
    if like is not None:
        for column in like.columns:
            check_column(inputs, column, source)
        inputs = inputs[list(like.columns)]
    check_infinity(table[list(inputs.columns)], source)
    for column, cell in numbers_as_text(inputs).items():
        note(
            f"note: column {column!r} may be taken as text because of cells such as {cell!r}: to have it as "
            "numbers, write plain ones, such as 1234.5, or leave cells empty",
            quiet,
        )
    for target in targets:
        if labels[target].min() == labels[target].max():
            only = f"{labels[target].iloc[0]:.6g}"
            note(f"note: the target {target!r} is {only} in every row: there is nothing to learn", quiet)
        for column in near_copies(inputs, labels[target]):
            note(
                f"note: column {column!r} is nearly the target {target!r}: if it is not known before the "
                f"target is, leave it out with --drop {_as_option(column)}",
                quiet,
            )
    if like is None:
        for column, how in id_columns(inputs).items():
            leave = f"leave it out with --drop {_as_option(column)} unless it means something"
            note(f"note: column {column!r} {how}, as ids do: {leave}", quiet)
        _note_spikes(labels, quiet)
    return Labelled(inputs, labels, weights)


def _note_spikes(labels: pd.DataFrame, quiet: bool) -> None:
    """Say what `tailwise diagnose` does of a target with a value that stands out, such as zero."""
    from tailwise.report.diagnosis import diagnose, spike_advice

    for target in labels.columns:
        found = diagnose(labels[target].to_numpy())
        if found.spike is not None and found.verdict not in ("constant", "too few to tell"):
            note(f"note: target {target!r}: {spike_advice(found, *found.spike)}", quiet)


def _as_option(column: str) -> str:
    """A column's name as a shell, and an option that takes several, would have it."""
    import shlex

    return shlex.quote(f'"{column}"' if "," in column else column)


def keep_aside(labelled: Labelled, share: float, seed: int, quiet: bool) -> tuple[Labelled, Labelled | None]:
    """Rows to train on, and rows to measure on: each as likely, rare label or common."""
    import numpy as np

    from tailwise.data import label_holdout

    first = labelled.labels.iloc[:, 0].to_numpy()
    rows = label_holdout(first, share=share, seed=seed, pool_small=True)
    if len(rows) == 0:
        if share > 0:
            note("note: too few rows to keep any aside; nothing is measured", quiet)
        return labelled, None
    rest = np.setdiff1d(np.arange(len(first)), rows)

    def taken(which: Any) -> Labelled:
        inputs, labels, weights = labelled
        return Labelled(
            inputs.iloc[which].reset_index(drop=True),
            labels.iloc[which].reset_index(drop=True),
            None if weights is None else weights.iloc[which].reset_index(drop=True),
        )

    return taken(rest), taken(rows)


def load_model(path: Path) -> TailRegressor:
    """Read a model, or say what is wrong with the file."""
    if path.is_dir():
        raise ValueError(f"{path} is a folder: name the file that `tailwise fit` wrote")
    if not path.exists():
        raise ValueError(f"{path} does not exist: name the file that `tailwise fit` wrote")
    from tailwise.estimator.regressor import TailRegressor

    return TailRegressor.load(path)


def inputs_of(model: TailRegressor, table: pd.DataFrame, name: str) -> pd.DataFrame:
    """The columns that the model was trained on, in its order."""
    from tailwise.data.tables.columns import check_column, check_infinity

    needed = [str(column) for column in getattr(model, "feature_names_in_", [])]
    for column in needed:
        try:
            check_column(table, column, name)
        except ValueError as error:
            said = str(error) if str(error).endswith("?") else f"{error}."
            raise ValueError(f"{said} The model was trained with it.") from None
    inputs = table[needed] if needed else table
    check_infinity(inputs, name)
    return inputs


def targets_of(model: TailRegressor, table: pd.DataFrame, given: Sequence[str], name: str) -> dict[str, int]:
    """Columns of true labels, each with the number of the model's target that it belongs to.

    They are as given or as the model knows them; of a model that knows no names, the only column that it
    was not trained on.
    """
    known = model.target_names_ or []
    for place, column in enumerate(given):
        if column in given[:place]:
            raise ValueError(f"column {column!r} is named as a target twice")
    if given and set(given) <= set(known):
        return {column: known.index(column) for column in given}
    if given and len(given) == model.n_targets_:
        return {column: place for place, column in enumerate(given)}
    if given:
        names = ", ".join(known) if known else f"{model.n_targets_} without a name"
        raise ValueError(f"the model's targets are {names}: name one of them, or columns for all, in order")
    titles = {str(column) for column in table.columns}
    for column in known:
        if column not in titles:
            which = "the model's target" if len(known) == 1 else "one of the model's targets"
            raise ValueError(f"{name} has no column {column!r}, {which}: name true labels with --target")
    if known:
        return {column: place for place, column in enumerate(known)}
    inputs = {str(column) for column in getattr(model, "feature_names_in_", [])}
    others = [str(column) for column in table.columns if str(column) not in inputs]
    if len(others) == 1 == model.n_targets_:
        return {others[0]: 0}
    what = f"columns {', '.join(others[:6])} could be it" if others else "it has only the model's inputs"
    raise ValueError(f"which column of {name} is the target? {what}: name it with --target")


def method_options_from(pairs: Sequence[str]) -> dict[str, Any] | None:
    """``["regularizer=0.01", "weights.power=1"]`` as options of a method, numbers as numbers."""
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
        options[key.strip()] = value
    return options or None


# -- training ------------------------------------------------------------------------------------


def check_folder(out: Path) -> None:
    """Raise, before any training, what the system says of new files where `out` will be."""
    import tempfile

    folder = next(folder for folder in (out.parent, *out.parent.parents) if folder.exists())
    try:
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:  # speak of the file that was asked for
        raise OSError(error.errno, error.strerror, str(out)) from error


def checkpoint_of(out: Path, suffix: str = "") -> Path:
    """Where a run that is stopped is kept."""
    return out.with_name(out.name + suffix + CHECKPOINT)


@contextmanager
def resumable(kept: Path | None) -> Iterator[None]:
    """Say to whoever stops the work whether, and from what, the same command goes on."""
    try:
        yield
    except KeyboardInterrupt as stop:
        if kept is None:
            stop.args = ("nothing was kept; with --out the same command could go on from here",)
        elif kept.exists():
            stop.args = (f"no output was written; the same command goes on from {kept}",)
        else:
            stop.args = ("nothing was written",)
        raise


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


def train(
    settings: Mapping[str, Any], labelled: Labelled, held: Labelled | None, checkpoint: Path, quiet: bool
) -> TailRegressor:
    """Fit a model; what a stopped command left in `checkpoint` is taken up."""
    from tailwise.estimator.regressor import TailRegressor

    if checkpoint.exists():
        note(f"going on from {checkpoint}", quiet)
    show_progress(quiet)
    watched = None if held is None else (held.inputs, _for_fit(held.labels))
    return TailRegressor(**settings).fit(
        labelled.inputs,
        _for_fit(labelled.labels),
        sample_weight=labelled.weights,
        eval_set=watched,
        checkpoint=checkpoint,
    )


def _for_fit(labels: pd.DataFrame) -> pd.DataFrame | pd.Series[float]:
    """One target as the 1-d labels that scikit-learn asks for."""
    return labels.iloc[:, 0] if labels.shape[1] == 1 else labels


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
    from tailwise.benchmark.data.problems import Source
    from tailwise.benchmark.run.results import ResultsFile, finished_runs
    from tailwise.benchmark.run.runs import run_one

    file = None if kept is None else ResultsFile(kept)
    done = {} if file is None else finished_runs(file.records)
    if done:
        note(f"going on from {kept}, where {len(done)} runs are kept", quiet)
    source = Source(name, target, lambda: table)
    records = []
    for seed in seeds:
        problem = source.problem(seed, max_rows=len(table))
        if len(problem.y_valid) == 0 or len(problem.y_test) == 0:
            raise ValueError(
                f"{len(table)} rows are too few to compare methods on: no label bin has three rows"
            )
        for contender in contenders:
            record = done.get((name, contender.name, seed))
            same = record is not None and record["digest"] == problem.digest
            if record is None or not same or record["recipe"] != recipe.describe():
                record = run_one(contender, problem, recipe, {})
                if file is not None:
                    file.append(record)
            records.append(record)
            error = record["metrics"]["raw"]["all"]["mae"]
            note(
                f"{contender.title}, seed {seed}: MAE {error:.4g}, {record['seconds']['all']:.1f} s",
                quiet,
            )
    return records


# -- writing -------------------------------------------------------------------------------------


def command_line() -> str:
    """What was typed, so that it can be typed again."""
    import shlex

    arguments = sys.argv[1:]
    return shlex.join(["tailwise", *arguments]) if arguments else "tailwise"


def save_picture(figure: Any, path: Path) -> None:
    """Write a chart in the format its name asks for."""
    from tailwise.data.writing import write_atomically

    kind = path.suffix.lstrip(".").lower() or "png"
    if kind not in figure.canvas.get_supported_filetypes():
        raise ValueError(f"cannot draw {path}: use .png, .svg or .pdf")
    write_atomically(path, lambda part: figure.savefig(part, format=kind, dpi=150))


def model_page_of(
    model: TailRegressor,
    scored: Scored,
    verdict: Verdict,
    baseline: Scored | None,
    *,
    target: str,
    place: int,
    source: str,
    test_source: str,
    weight: str | None = None,
    trained_here: bool = True,
    seconds: float = 0.0,
) -> str:
    """The page about one target of a model, the `place`-th."""
    from tailwise.methods import get_method
    from tailwise.report.page import Facts, model_page

    facts = Facts(
        target=target,
        source=name_of(source),
        method=model.method,
        train_rows=int(scored.bins.counts.sum()),
        features=int(model.n_features_in_),
        command=command_line(),
        parts=get_method(model.method).parts.with_options(**(model.method_options or {})),
        intervals=model.explain_intervals(scored.coverage, target=place),
        test_source=test_source,
        weight=weight,
        trained_here=trained_here,
        epochs=len(model.history_.history),
        best_epoch=model.history_.best_epoch,
        seconds=seconds,
        seed=model.random_state if isinstance(model.random_state, int) else None,
        settings={
            name: getattr(model, name) for name in ("backbone", "epochs", "batch_size", "lr", "monitor")
        },
    )
    return model_page(scored, verdict, facts, baseline)


def write_page(path: Path, page: str) -> None:
    """Write an HTML page."""
    from tailwise.data.writing import write_atomically

    write_atomically(path, lambda part: part.write_text(page, encoding="utf-8"))
