"""Reading tables and models for commands, with notes about what a user may not expect."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from tailwise.cli.addresses import check_model
from tailwise.cli.options import quoted_name
from tailwise.cli.output import STANDARD, note

if TYPE_CHECKING:
    import pandas as pd

    from tailwise.estimator import TailRegressor


MOST_NOTES = 5
"""Columns that a note names, of those that look like one mistake."""


class Labelled(NamedTuple):
    """Inputs and labels of the same rows, one column for each target, and their weights if there are any."""

    inputs: pd.DataFrame
    labels: pd.DataFrame
    weights: pd.Series[float] | None = None
    groups: pd.Series[Any] | None = None
    times: pd.Series[Any] | None = None

    def take(self, rows: Any) -> Labelled:
        """Return some of the rows, renumbered."""
        parts: list[Any] = [None if p is None else p.iloc[rows].reset_index(drop=True) for p in self]
        return Labelled(*parts)


class Roles(NamedTuple):
    """Names of columns with a role: targets, columns to leave out, and those of weights, groups and times.

    With `bounds`, a target beyond them is an error.
    """

    targets: Sequence[str]
    drop: Sequence[str] = ()
    weight: str | None = None
    groups: str | None = None
    time: str | None = None
    bounds: Any = None


def file_name(source: str) -> str:
    """Return what a page calls a table."""
    return "standard input" if source == STANDARD else Path(source).name


def load_table(source: str, quiet: bool, encoding: str | None = None) -> pd.DataFrame:
    """Read a table; note a guessed encoding, and how many columns without a name were left out."""
    from tailwise.tables.read import TableError, read_table

    try:
        table = read_table(source, encoding)
    except TableError as error:
        hint = " with --encoding" if "name its encoding" in str(error) else ""
        raise TableError(f"{error}{hint}") from None
    guessed = table.attrs.pop("encoding", None)
    if guessed is not None:
        note(
            f"note: {source} is not UTF-8 and was read as {guessed}: name another one with --encoding", quiet
        )
    unnamed = table.attrs.pop("unnamed", 0)
    if unnamed:
        note(f"note: left out {unnamed} column{'s' if unnamed > 1 else ''} without a name", quiet)
    return table


def split_labelled(table: pd.DataFrame, roles: Roles, name: str, quiet: bool) -> Labelled:
    """Split a table into the parts of `Labelled`; note how many rows without a label are left out."""
    from tailwise.tables.columns import row_weights, split_targets

    targets, drop, weight, groups, time, bounds = roles
    if weight in targets:
        raise ValueError(f"column {weight!r} is the target and cannot be the weight as well")
    for flag, column in (("--groups", groups), ("--time", time)):
        if column in targets:
            raise ValueError(f"column {column!r} is the target: name another column with {flag}")
    not_inputs = [*drop, *(column for column in (weight, groups) if column is not None)]
    inputs, labels, missing = split_targets(table, targets, name, not_inputs)
    weights = None if weight is None else row_weights(table, weight, targets, name)
    if isinstance(bounds, tuple):
        _check_bounds(table, bounds, targets, name)
    if missing:
        words = " or ".join(map(repr, targets))
        rows = "row" if missing == 1 else "rows"
        note(f"note: left out {missing} {rows} of {name} without a value in {words}", quiet)
    if time is not None:
        _check_times(table, time, targets, name)
    beside = (
        None if column is None else column_beside(table, column, targets, name) for column in (groups, time)
    )
    return Labelled(inputs, labels, weights, *beside)


def _check_bounds(table: pd.DataFrame, bounds: tuple[Any, Any], targets: Sequence[str], name: str) -> None:
    """Raise an error that names the first line with a label beyond the bounds."""
    import numpy as np

    from tailwise.distributions.truncation import bounds_of
    from tailwise.tables.columns import number_column

    for target in targets:
        labels = np.asarray(number_column(table, target, name), np.float64)
        limits = bounds_of(bounds, labels)
        if limits is not None:
            limits.check(labels, f"{name}: the target {target!r}", row="line", first=2)


def _check_times(table: pd.DataFrame, column: str, targets: Sequence[str], name: str) -> None:
    """Raise an error that names the first line with labels whose cell is neither a number nor a date."""
    import pandas as pd

    from tailwise.tables.columns import check_column

    check_column(table, column, name)
    cells = table[column]
    if cells.dtype.kind in "biufmM":
        return
    known = table[list(targets)].notna().all(axis=1) & cells.notna()
    wrong = (known & pd.to_datetime(cells, format="ISO8601", errors="coerce", utc=True).isna()).to_numpy()
    if wrong.any():
        line = int(wrong.argmax())
        raise ValueError(
            f"{name}: --time takes numbers or dates such as 2024-01-31, but column {column!r} holds "
            f"{cells.iloc[line]!r} in line {line + 2}: write it in this form, or name another column"
        )


def column_beside(
    table: pd.DataFrame, column: str, targets: Sequence[str], name: str, *, may_be_empty: bool = False
) -> pd.Series[Any]:
    """Return a column of the rows that have labels; an empty cell is an error unless it may be one."""
    from tailwise.tables.columns import check_column

    check_column(table, column, name)
    known = table[list(targets)].notna().all(axis=1).to_numpy()
    empty = known & table[column].isna().to_numpy()
    if empty.any() and not may_be_empty:
        raise ValueError(f"{name}: column {column!r} is empty in line {int(empty.argmax()) + 2}: fill it")
    return table[column][known].reset_index(drop=True)


def load_labelled(
    source: str,
    roles: Roles,
    quiet: bool,
    encoding: str | None = None,
    like: pd.DataFrame | None = None,
) -> Labelled:
    """Read a table as inputs and targets, and note what looks like a mistake.

    The inputs are the columns of `like`, in its order. Without `like` they are all remaining columns.
    """
    from tailwise.tables.columns import check_column, check_infinity, count_others

    table = load_table(source, quiet, encoding)
    split = split_labelled(table, roles, source, quiet)
    inputs, labels = split.inputs, split.labels
    if like is None:
        if inputs.isna().all(axis=None):
            raise ValueError(f"{source}: every input is empty in all rows: there is nothing to predict from")
        count_others(inputs)
    else:
        for column in like.columns:
            check_column(inputs, column, source)
        inputs = inputs[list(like.columns)]
    check_infinity(table[list(inputs.columns)], source)
    if not quiet:
        _note_suspicious_columns(inputs, labels)
        if like is None:
            _note_ids(inputs)
            _note_spikes(labels)
    return split._replace(inputs=inputs)


def _note_suspicious_columns(inputs: pd.DataFrame, labels: pd.DataFrame) -> None:
    """Note numbers that will be read as text, constant targets, and inputs that give a target away."""
    from tailwise.tables.columns import near_copies, numbers_as_text

    _note_some(
        f"column {column!r} may be read as text because of cells such as {cell!r}: for numbers, write 1234.5 "
        "or leave the cell empty"
        for column, cell in numbers_as_text(inputs).items()
    )
    for target in labels:
        if labels[target].min() == labels[target].max():
            only = f"{labels[target].iloc[0]:.6g}"
            note(f"note: the target {target!r} is {only} in every row: there is nothing to learn")
        _note_some(
            f"column {column!r} is almost the same as the target {target!r}: if it is only known after the "
            f"target, leave it out with --drop {quoted_name(column)}"
            for column in near_copies(inputs, labels[target])
        )


def _note_ids(inputs: pd.DataFrame) -> None:
    from tailwise.tables.columns import id_columns

    _note_some(
        f"column {column!r} {how}, as ids do: leave it out with --drop {quoted_name(column)} unless it has a "
        "meaning"
        for column, how in id_columns(inputs).items()
    )


def _note_some(texts: Iterable[str]) -> None:
    """Note the first texts about columns, and how many there are more."""
    found = list(texts)
    for text in found[:MOST_NOTES]:
        note(f"note: {text}")
    if len(found) > MOST_NOTES:
        note(f"note: {len(found) - MOST_NOTES} more columns are like this")


def _note_spikes(labels: pd.DataFrame) -> None:
    """Note a value such as zero that many labels share, in the words of `tailwise diagnose`."""
    from tailwise.report.diagnosis import diagnose, spike_advice

    for target in labels.columns:
        found = diagnose(labels[target].to_numpy())
        if found.spike is not None and found.verdict not in ("constant", "too few to tell"):
            note(f"note: target {target!r}: {with_flags(spike_advice(found, *found.spike))}")


def with_flags(advice: str) -> str:
    """Return advice about labels with the flags of `tailwise fit` in place of the settings in Python.

    >>> with_flags("Method 'two-part' does this.")
    '`fit --method two-part` does this.'
    """
    for words, flags in (
        ("set bins to ", "--bins "),
        ("set bounds to ", "use --bounds "),
        ("TailRegressor with its defaults and its dial (emphasis)", "`fit` and its dial (--emphasis)"),
        ("Method 'two-part' does", "`fit --method two-part` does"),
    ):
        advice = advice.replace(words, flags)
    return advice


def hold_out(labelled: Labelled, share: float, seed: int, quiet: bool) -> tuple[Labelled, Labelled | None]:
    """Split rows into training and test rows; rare and common labels have the same share of test rows.

    With times the latest rows are the test rows. With groups no group is on both sides.
    """
    import numpy as np

    from tailwise.data import label_holdout
    from tailwise.model.split import deal_group_folds, group_codes, latest_rows

    first = labelled.labels.iloc[:, 0].to_numpy()
    if labelled.times is not None and share > 0:
        rows = latest_rows(labelled.times, len(first), share)[1]
    elif labelled.groups is not None and share > 0:
        codes = group_codes(labelled.groups, len(first))
        parts = min(max(round(1 / share), 2), int(codes.max()) + 1)
        rows = np.flatnonzero(deal_group_folds(first, codes, seed, parts) == 0)
    else:
        rows = label_holdout(first, share=share, seed=seed, pool_small=True)
    if len(rows) == 0:
        if share > 0:
            note("note: there are too few rows for test rows; nothing is measured", quiet)
        return labelled, None
    return labelled.take(np.setdiff1d(np.arange(len(first)), rows)), labelled.take(rows)


HISTOGRAM = ("lower", "upper", "count")
"""Columns of a label prior that is a histogram."""


def load_label_prior(source: str, model: TailRegressor, quiet: bool) -> Any:
    """Read the labels expected in use, in the form that the model's predictions take.

    The table has a column of labels for each target, named after it; if it has one column only, any name
    will do. Or it is a histogram with the columns of `HISTOGRAM`. A prior without a label in the range of
    the training labels is an error.
    """
    from tailwise.labels.prior import LabelDensity

    table = load_table(source, quiet)
    names = model.target_names_ or []
    if set(HISTOGRAM) <= set(table.columns) and not set(names) & set(HISTOGRAM):
        if model.n_targets_ > 1:
            raise ValueError(f"{source} is a histogram of one target, but the model has {model.n_targets_}")
        priors: list[Any] = [_histogram(table, source)]
    elif table.shape[1] == 1 == model.n_targets_:
        priors = [_label_column(table, str(table.columns[0]), source)]
    elif names:
        priors = [_label_column(table, name, source) for name in names]
    else:
        raise ValueError(f"{source} has {table.shape[1]} columns: keep only the column of labels")
    for prior, target in zip(priors, model.model_.targets, strict=True):
        try:
            LabelDensity.from_prior(prior, target.labels.density)
        except ValueError as error:
            raise ValueError(f"{source}: {error}") from None
    return priors[0] if model.n_targets_ == 1 else priors


def _label_column(table: pd.DataFrame, name: str, source: str) -> Any:
    """Return a column as labels, without empty cells."""
    from tailwise.tables.columns import number_column

    labels = number_column(table, name, source).dropna()
    if labels.empty:
        raise ValueError(f"{source}: the column {name!r} is empty")
    return labels.to_numpy()


def _histogram(table: pd.DataFrame, source: str) -> tuple[Any, Any]:
    """Return edges and counts; rows may be in any order, but must leave no gap."""
    import numpy as np

    columns = [_label_column(table, name, source) for name in HISTOGRAM]
    for name, column in zip(HISTOGRAM, columns, strict=True):
        if len(column) < len(table):
            raise ValueError(f"{source}: the column {name!r} has {len(table) - len(column)} empty cells")
    lower, upper, count = np.stack(columns)[:, np.argsort(columns[0], kind="stable")]
    if (count < 0).any():
        raise ValueError(f"{source}: column 'count' has a negative number, {count.min():g}")
    if not (lower < upper).all():
        at = int(np.argmin(lower < upper))
        raise ValueError(
            f"{source}: 'lower' must be below 'upper', but a row has {lower[at]:g} and {upper[at]:g}"
        )
    if not (upper[:-1] == lower[1:]).all():
        at = int(np.argmin(upper[:-1] == lower[1:]))
        raise ValueError(
            f"{source}: after a row with 'upper' {upper[at]:g} the next has 'lower' {lower[at + 1]:g}: both "
            "must be the same"
        )
    return np.append(lower, upper[-1]), count


def check_key(key: Path | None, inputs: Sequence[str | Path]) -> None:
    """Raise an error for a key that cannot be used, or that is no secret because it is an input as well."""
    if key is None:
        return
    from tailwise.files.archive import key_bytes

    key_bytes(key)
    for source in inputs:
        if str(source) != STANDARD and Path(source).exists() and key.samefile(source):
            raise ValueError(
                f"{key} is an input and the key: name a file with a secret, as `openssl rand -hex 32` makes"
            )


def load_model(path: Path, key: Path | None = None) -> TailRegressor:
    """Read a model, or raise an error that says what is wrong with the file or, with `key`, its signature."""
    if path.is_dir() or not path.exists():
        what = "is a folder" if path.is_dir() else "does not exist"
        raise ValueError(f"{path} {what}: name a model file written by `tailwise fit`")
    check_model(path)
    from tailwise.estimator import TailRegressor

    try:
        return TailRegressor.load(path, key=key)
    except ValueError as error:
        hint = ", with --plugin FILE" if "registers the method" in str(error) else ""
        raise ValueError(f"{error}{hint}") from None
