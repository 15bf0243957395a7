"""Reading tables, pictures and models for commands, with notes about what a user may not expect."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tailwise.cli.options import DialOptions, PictureOptions, Shared, parse_emphasis, quoted_name
from tailwise.cli.output import STANDARD, note

if TYPE_CHECKING:
    import pandas as pd

    from tailwise.estimator import TailRegressor
    from tailwise.streams.sources import ParquetRows

MOST_NOTES = 5
"""Columns that a note names, of those that look like one mistake."""
STREAM_ROWS = 5_000_000
"""A Parquet file with more rows than this is streamed, and so is every folder."""
MEASURED_ROWS = 100_000
"""Rows of a stream that a model is measured on, at most."""
SAMPLE_SEED = 1 << 32
"""Of samples of a stream; the seeds of its held-out rows are smaller."""

# -- tables ----------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Rows:
    """A table as commands carry it: inputs, labels with a column for each target, and what goes with rows."""

    X: pd.DataFrame
    y: pd.DataFrame
    weight: pd.Series[float] | None = None
    groups: pd.Series[Any] | None = None
    time: pd.Series[Any] | None = None
    name: str = "data"

    def __len__(self) -> int:
        return len(self.y)

    @property
    def labels(self) -> Any:
        """The labels as the estimator takes them: (N,) for one target."""
        return self.y.iloc[:, 0] if self.y.shape[1] == 1 else self.y

    def take(self, rows: Any) -> Rows:
        """Return some of the rows, renumbered."""
        columns = {name: getattr(self, name) for name in ("X", "y", "weight", "groups", "time")}
        some = {k: v.iloc[rows].reset_index(drop=True) for k, v in columns.items() if v is not None}
        return replace(self, **some)


@dataclass(frozen=True)
class Roles:
    """Names of columns with a role; with `bounds`, a target beyond them is an error."""

    targets: Sequence[str]
    drop: Sequence[str] = ()
    weight: str | None = None
    groups: str | None = None
    time: str | None = None
    bounds: Any = None


def file_name(source: str) -> str:
    """Return what a page calls a table."""
    return "standard input" if source == STANDARD else Path(source).name


@dataclass(frozen=True)
class Reader:
    """Reads the tables of a command, with the pictures that they name if there are any."""

    shared: Shared
    pictures: PictureOptions = field(default_factory=PictureOptions)
    size: int | tuple[int, int] = 0
    """Of the pictures."""

    @classmethod
    def of_model(cls, fitted: TailRegressor, shared: Shared, pictures: PictureOptions) -> Reader:
        """Return a reader of what a fitted model takes."""
        from tailwise.model.inputs import PictureInputs

        if not isinstance(inputs := fitted.model_.inputs, PictureInputs):
            if pictures.images is not None:
                raise ValueError("this model was trained on a table, not on pictures: leave out --images")
            return cls(shared)
        if pictures.images is None:
            raise ValueError("this model takes pictures: name their folder or zip archive with --images")
        names = getattr(fitted, "feature_names_in_", [pictures.paths])
        return cls(shared, replace(pictures, paths=str(names[0])), inputs.size)

    def table(self, source: str) -> pd.DataFrame:
        """Read a table; the column of paths of pictures has their folder in front."""
        table = load_table(source, self.shared.quiet, self.shared.encoding)
        return (
            table if self.pictures.images is None else self._with_paths(table, self.pictures.images, source)
        )

    def _with_paths(self, table: pd.DataFrame, images: str, source: str) -> pd.DataFrame:
        """Put the folder in front of the paths of pictures, and leave unusable ones out if asked."""
        from tailwise.images import decode_pictures
        from tailwise.images.pictures import PictureFiles
        from tailwise.tables.columns import check_column

        files, column = PictureFiles(images), self.pictures.paths  # an error if there is no such folder
        check_column(table, column, source)
        _check_filled(table[column], source)
        paths = [files.path(str(name)) for name in table[column]]
        full = table.assign(**{column: paths})
        if not self.pictures.skip_broken:
            return full
        progress = False if self.shared.quiet else None
        decoded = decode_pictures(paths, size=self.size, on_broken="skip", progress=progress)
        if problems := decoded.problems:
            more = f" and {len(problems) - MOST_NOTES} more" if len(problems) > MOST_NOTES else ""
            shown = f"{'; '.join(problems[:MOST_NOTES])}{more}"
            note(f"note: left out {len(problems)} pictures: {shown}", self.shared.quiet)
        return full[decoded.usable].reset_index(drop=True)

    def rows(self, source: str, roles: Roles, like: pd.DataFrame | None = None) -> Rows:
        """Read a table as inputs and targets, and note what looks like a mistake.

        The inputs are the columns of `like`, in its order. Without `like` they are all remaining columns, or
        the column of paths of pictures.
        """
        from tailwise.tables.columns import check_column, check_infinity, count_others

        table = self.table(source)
        rows = split_labelled(table, roles, source, self.shared.quiet)
        if self.pictures.images is not None:
            return replace(rows, X=rows.X[[self.pictures.paths]])
        if like is None:
            count_others(rows.X)
            if rows.X.isna().all(axis=None):
                raise ValueError(
                    f"{source}: every input is empty in all rows: there is nothing to predict from"
                )
        else:
            for column in like.columns:
                check_column(rows.X, column, source)
            rows = replace(rows, X=rows.X[list(like.columns)])
        check_infinity(table[list(rows.X)], source)  # all rows, for the numbers of lines
        if not self.shared.quiet:
            _note_suspicious(rows, first=like is None)
        return rows

    def stream(self, source: str, wanted: bool, **unfit: object) -> ParquetRows | None:
        """Return a table as a stream if it is a folder or large, or if that is `wanted`; otherwise None.

        `unfit` are the values of options that a stream does not take. One that is set is an error for a
        folder and with `wanted`; a large file is read as a whole then.
        """
        unfit |= {"--images": self.pictures.images, "--encoding": self.shared.encoding}
        folder = source != STANDARD and Path(source).is_dir()
        rows = None if folder or source == STANDARD else _parquet_rows(Path(source))
        if not folder and rows is None:
            if wanted:
                raise ValueError(
                    f"--stream and --ray are for Parquet files and folders of them, and {source} is neither"
                )
            return None
        flag = next((flag for flag, value in unfit.items() if value not in (None, False)), None)
        if flag is not None and (folder or wanted):
            raise ValueError(f"{source} is read in parts, which {flag} does not go with: leave it out")
        if not (folder or wanted or (flag is None and (rows or 0) > STREAM_ROWS)):
            return None
        from tailwise.streams.sources import ParquetRows

        return ParquetRows(source)


def load_table(source: str, quiet: bool, encoding: str | None = None) -> pd.DataFrame:
    """Read a table; note a guessed encoding, units, and how many columns without a name were left out."""
    from tailwise.tables.read import read_table

    table = read_table(source, encoding)
    if (guessed := table.attrs.pop("encoding", None)) is not None:
        note(f"note: {source} is not UTF-8 and was read as {guessed}: name another with --encoding", quiet)
    for title, unit in table.attrs.pop("units", {}).items():
        note(f"note: read column {title!r} as numbers in {unit}; every table must have this unit", quiet)
    if unnamed := table.attrs.pop("unnamed", 0):
        note(f"note: left out {unnamed} column{'s' * (unnamed > 1)} without a name", quiet)
    return table


def split_labelled(table: pd.DataFrame, roles: Roles, name: str, quiet: bool) -> Rows:
    """Split a table by the roles of its columns; note how many rows without a label are left out."""
    from tailwise.tables.columns import row_weights, split_targets

    targets = roles.targets
    for role, column in {"weight": roles.weight, "groups": roles.groups, "time": roles.time}.items():
        if column in targets:
            raise ValueError(f"column {column!r} is the target: name another column with --{role}")
    not_inputs = [*roles.drop, *(column for column in (roles.weight, roles.groups) if column is not None)]
    inputs, labels, missing = split_targets(table, targets, name, not_inputs)
    weights = None if roles.weight is None else row_weights(table, roles.weight, targets, name)
    if isinstance(roles.bounds, tuple):
        _check_bounds(table, roles.bounds, targets, name)
    if missing:
        words = " or ".join(map(repr, targets))
        note(f"note: left out {missing} row{'s' * (missing > 1)} of {name} without a value in {words}", quiet)
    groups, time = (
        None if column is None else column_beside(table, column, targets, name)
        for column in (roles.groups, roles.time)
    )
    return Rows(inputs, labels, weights, groups, time, name)


def _check_filled(cells: pd.Series[Any], source: str) -> None:
    """Raise an error that names the first line with an empty cell."""
    empty = cells.isna()
    if empty.any():
        row: Any = cells.index[empty][0]
        raise ValueError(f"{source}: column {cells.name!r} is empty in line {row + 2}: fill it")


def _check_bounds(table: pd.DataFrame, bounds: tuple[Any, Any], targets: Sequence[str], name: str) -> None:
    """Raise an error that names the first line with a label beyond the bounds."""
    import numpy as np

    from tailwise.distributions.truncation import bounds_of
    from tailwise.tables.columns import number_column

    for target in targets:
        labels = np.asarray(number_column(table, target, name), np.float64)
        if (limits := bounds_of(bounds, labels)) is not None:
            limits.check(labels, f"{name}: the target {target!r}", row="line", first=2)


def column_beside(
    table: pd.DataFrame, column: str, targets: Sequence[str], name: str, *, may_be_empty: bool = False
) -> pd.Series[Any]:
    """Return a column of the rows that have labels; an empty cell is an error unless it may be one."""
    from tailwise.tables.columns import check_column

    check_column(table, column, name)
    cells = table.loc[table[list(targets)].notna().all(axis=1), column]
    if not may_be_empty:
        _check_filled(cells, name)
    return cells.reset_index(drop=True)


def _note_suspicious(rows: Rows, *, first: bool) -> None:
    """Note numbers that will be read as text, constant targets, and inputs that give a target away.

    Of the `first` table also note values such as zero that many labels share.
    """
    from tailwise.report.diagnosis import diagnose
    from tailwise.tables.columns import near_copies, numbers_as_text

    _note_some(
        f"column {column!r} may be read as text because of cells such as {cell!r}: for numbers, write 1234.5 "
        "or leave the cell empty"
        for column, cell in numbers_as_text(rows.X).items()
    )
    for target, labels in rows.y.items():
        if labels.min() == labels.max():
            only = f"{labels.iloc[0]:.6g}"
            note(f"note: the target {target!r} is {only} in every row: there is nothing to learn")
        elif first:
            diagnosis = diagnose(labels.to_numpy())
            if diagnosis.spike is not None and diagnosis.verdict != "too few to tell":
                note(f"note: target {target!r}: {diagnosis.spike_advice(flags=True)}")
        _note_some(
            f"column {column!r} is almost the same as the target {target!r}: if it is only known after the "
            f"target, leave it out with --drop {quoted_name(column)}"
            for column in near_copies(rows.X, labels)
        )


def _note_some(texts: Iterable[str]) -> None:
    """Note the first texts about columns, and how many there are more."""
    notes = list(texts)
    for text in notes[:MOST_NOTES]:
        note(f"note: {text}")
    if len(notes) > MOST_NOTES:
        note(f"note: {len(notes) - MOST_NOTES} more columns are like this")


# -- tables larger than memory ---------------------------------------------------------------------


def _parquet_rows(path: Path) -> int | None:
    """Return the number of rows of a Parquet file, 0 if reading it will fail; None for any other file."""
    if not path.is_file():  # to open a pipe would wait
        return None
    try:
        with path.open("rb") as file:
            if file.read(4) != b"PAR1":
                return None
        import pyarrow.parquet as pq

        return int(pq.read_metadata(path).num_rows)
    except Exception:
        return 0


def measured_rows(stream: ParquetRows, quiet: bool) -> pd.DataFrame:
    """Return the rows of a stream to measure a model on: all, or a random sample of `MEASURED_ROWS`."""
    from tailwise.streams.survey import held_share, sampled_rows

    share = min(1.0, MEASURED_ROWS / stream.rows)
    table = sampled_rows(stream, held_share(share, SAMPLE_SEED)).reset_index(drop=True)
    if len(table) < stream.rows:
        counts = f"{len(table)} of the {stream.rows} rows of {stream.name}"
        note(f"note: measured on a random sample of {counts}", quiet)
    return table


# -- models ----------------------------------------------------------------------------------------


def load_model(path: Path, key: Path | None = None) -> TailRegressor:
    """Read a model, or raise an error that says what is wrong with the file or, with `key`, its signature."""
    if path.is_dir() or not path.exists():
        what = "is a folder" if path.is_dir() else "does not exist"
        raise ValueError(f"{path} {what}: name a model file written by `tailwise fit`")
    from tailwise.estimator import TailRegressor

    return TailRegressor.load(path, key=key)


def check_key(key: Path | None) -> None:
    """Raise an error for a key that cannot be used, before any work is done."""
    if key is not None:
        from tailwise.files.archive import key_bytes

        key_bytes(key)


def read_dial(fitted: TailRegressor, dial: DialOptions, data: str, quiet: bool) -> dict[str, Any]:
    """Return the arguments of a prediction that set the dial; none for the model's own emphasis."""
    emphasis = parse_emphasis(dial.emphasis)
    if dial.label_prior is None:
        return {} if emphasis == "auto" else {"emphasis": emphasis}
    if emphasis != "auto":
        raise ValueError("give --emphasis or --label-prior, not both")
    if dial.label_prior == STANDARD == data:
        raise ValueError("only one of FILE and --label-prior can be - (standard input)")
    return {"label_prior": load_label_prior(dial.label_prior, fitted, quiet)}


def load_label_prior(source: str, model: TailRegressor, quiet: bool) -> Any:
    """Read the labels expected in use, in the form that the model's predictions take.

    The table has a column of labels for each target, named after it; if it has one column only, any name
    will do. A prior without a label in the range of the training labels is an error.
    """
    from tailwise.labels.prior import LabelDensity
    from tailwise.tables.columns import number_column

    table, names = load_table(source, quiet), model.target_names_ or []
    if table.shape[1] == 1 == model.n_targets_:
        names = [str(table.columns[0])]
    if not names:
        raise ValueError(f"{source} has {table.shape[1]} columns: keep only the column of labels")
    priors = []
    for name, target in zip(names, model.model_.targets, strict=True):
        labels = number_column(table, name, source).dropna().to_numpy()
        if not labels.size:
            raise ValueError(f"{source}: the column {name!r} is empty")
        try:
            LabelDensity.from_prior(labels, target.labels.density)
        except ValueError as error:
            raise ValueError(f"{source}: {error}") from None
        priors.append(labels)
    return priors[0] if model.n_targets_ == 1 else priors
