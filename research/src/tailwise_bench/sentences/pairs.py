"""Sentence pairs with a score: STS-B-DIR and any file of two texts and a number.

`read_pairs` names the line of every row it cannot use and the reason, and raises an error or skips the row.
Its reader is not that of tables: STS-B's quotation marks are plain characters, and one broken row must not
spoil the others.
"""

from __future__ import annotations

import csv
import itertools
import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Generic, Literal, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tailwise.labels.bins import checked_labels
from tailwise.lookup import nearest
from tailwise.tables.columns import as_number
from tailwise.tables.read import TableError, file_content
from tailwise_bench.sentences.arrays import read_arrays

T = TypeVar("T")
OnError = Literal["raise", "skip"]
Column = str | int
Fields = list[str]
Row = Fields | str
"""The fields of a row, or the reason why it cannot be read."""

STSB_NAMES = ("sentence1", "sentence2", "score")
"""Names of the columns in GLUE's STS-B files."""
STSB_PLACES = (7, 8, 9)
"""Places of these columns, for files of the same layout with other names."""
STSB_LIMITS = (0.0, 5.0)
"""The lowest and the highest score of STS-B."""
DIR_BINS = 50
"""Number of DIR's bins over the scores 0 to 5, each 0.1 wide."""
DIR_MANY = (0, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30, 32, 34, 36, 38, 40, 42, 44, 46, 48, 49)
DIR_MEDIUM = (2, 4, 6, 8, 27, 35, 37)
"""DIR's published many-shot and medium-shot bins of STS-B-DIR; all other bins are few-shot."""
PARTS = ("train", "dev", "test")
_SHOWN_ROWS = 5
_CSV_DELIMITERS = (",", ";", "|")
_DECIMAL_COMMA = re.compile(r"[+-]?\d+,\d+")
_NOT_UTF8 = re.compile("[\udc80-\udcff]")


@dataclass(frozen=True, eq=False)
class SentencePairs:
    """Pairs of sentences with a score of their similarity; `skipped` lists the rows left out and why."""

    first: list[str]  # N
    second: list[str]  # N
    score: NDArray[np.float64]  # (N,)
    skipped: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if isinstance(self.first, str) or isinstance(self.second, str):
            raise TypeError("first and second must be lists of sentences, got one text: put it in a list")
        object.__setattr__(self, "score", np.asarray(self.score, np.float64))
        if not len(self.first) == len(self.second) == len(self.score):
            raise ValueError(
                f"got {len(self.first)} first sentences, {len(self.second)} second sentences and "
                f"{len(self.score)} scores: their numbers must be equal"
            )

    def __len__(self) -> int:
        return len(self.first)

    @cached_property
    def sentences(self) -> list[str]:
        """All first sentences, then all second sentences. 2N"""
        return [*self.first, *self.second]


@dataclass(frozen=True, eq=False)
class PairVectors:
    """Sentence pairs as pairs of vectors, with their scores."""

    x: NDArray[np.float32]  # (N, 2, D)
    y: NDArray[np.float64]  # (N,)

    def __len__(self) -> int:
        return len(self.y)


@dataclass(frozen=True, eq=False)
class Parts(Generic[T]):
    """The three parts of a benchmark."""

    train: T
    dev: T
    test: T


# -- files of pairs ------------------------------------------------------------------------------


def read_pairs(
    path: str | Path,
    *,
    columns: tuple[Column, Column, Column] | None = None,
    limits: tuple[float, float] | None = None,
    named: bool | None = None,
    quoted: bool | None = None,
    on_error: OnError = "raise",
) -> SentencePairs:
    """Read sentence pairs and scores from a tsv or CSV file, gzip or not.

    Parameters
    ----------
    columns : names or places (from 0) of the first sentence, the second sentence and the score. The default
        is the layout of GLUE's STS-B: columns ``sentence1``, ``sentence2`` and ``score``, or columns 7, 8
        and 9 of a file with ten columns.
    limits : the lowest and the highest score allowed.
    named : whether the first line names the columns. By default it does, unless `columns` are places and
        the score in that line is a number.
    quoted : whether quotation marks enclose fields. By default they do in CSV (commas, semicolons or bars),
        and in a tsv file if every name in its first line is quoted; in other tsv files, as in GLUE's, they
        are plain characters.
    on_error : ``"raise"`` an error that names the lines of bad rows, or ``"skip"`` these rows and list them
        in ``skipped``.

    A row is bad if it has missing or surplus fields, an empty sentence, an open quotation mark, a score that
    is not a finite number within `limits`, or bytes that are not UTF-8.
    """
    if on_error not in ("raise", "skip"):
        raise ValueError(f"unknown on_error {on_error!r}{nearest(str(on_error), ('raise', 'skip'))}")
    if limits is not None and not limits[0] <= limits[1]:
        raise ValueError(f"limits must be the lowest and the highest score, got {limits!r}")
    rows = _rows(_text(Path(path)), quoted)
    line, opening = next(rows, (0, None))
    if opening is None:
        raise TableError(f"{path} is empty: it needs a line of column names and rows below it")
    if isinstance(opening, str):
        raise TableError(f"{path}: line {line}: {opening}: correct it, because this line names the columns")
    places, names_columns = _places(opening, columns, str(path))
    named = names_columns if named is None else named
    body = rows if named else itertools.chain([(line, opening)], rows)
    pairs: list[tuple[str, str, float]] = []
    bad: list[str] = []
    for line, row in body:
        found = row if isinstance(row, str) else _pair(row, places, len(opening) if named else None, limits)
        if isinstance(found, str):
            bad.append(f"line {line}: {found}")
        else:
            pairs.append(found)
    if not pairs and not bad:
        raise TableError(f"{path} has a line of column names but no rows")
    if bad and (on_error == "raise" or not pairs):
        shown = "; ".join(bad[:_SHOWN_ROWS]) + ("; ..." if len(bad) > _SHOWN_ROWS else "")
        remedy = "correct them, or skip them with on_error='skip'" if pairs else "check the columns"
        raise TableError(
            f"{path}: {len(bad)} of {len(pairs) + len(bad)} rows cannot be used: {shown}: {remedy}"
        )
    first, second, score = zip(*pairs, strict=True)
    return SentencePairs(list(first), list(second), np.array(score, np.float64), tuple(bad))


def load_stsb_dir(folder: str | Path, *, on_error: OnError = "raise") -> Parts[SentencePairs]:
    """Read STS-B-DIR, the split of DIR (Yang et al., 2021) with balanced dev and test parts.

    The folder holds ``train.tsv``, ``dev.tsv`` and ``test.tsv``. If it also holds ``train_new.tsv`` and so
    on, which DIR's script writes beside the original files, these are read instead. A row with a score
    outside 0 to 5 is bad.
    """
    root = Path(folder)
    if not root.is_dir():
        raise TableError(f"{root} is not a folder: it must hold train.tsv, dev.tsv and test.tsv")
    made = [(root / f"{part}_new.tsv").is_file() for part in PARTS]
    paths = [root / f"{part}{'_new' if any(made) else ''}.tsv" for part in PARTS]
    missing = next((path.name for path in paths if not path.is_file()), None)
    if missing and any(made):
        raise TableError(
            f"{root} holds {paths[made.index(True)].name} but no {missing}: all three parts must be of one "
            "split, or test rows would be trained on"
        )
    if missing:
        raise TableError(f"{root} holds no {missing}: STS-B-DIR consists of train.tsv, dev.tsv and test.tsv")
    return Parts(*(read_pairs(path, limits=STSB_LIMITS, on_error=on_error) for path in paths))


def load_sentence_vectors(path: str | Path) -> Parts[PairVectors]:
    """Read frozen sentence vectors in float32 from an npz file with arrays ``{train,dev,test}_{a,b,y}``."""
    stored = read_arrays(Path(path), [f"{part}_{what}" for part in PARTS for what in "aby"])
    parts = [_pair_vectors(stored, part, str(path)) for part in PARTS]
    sizes = [part.x.shape[2] for part in parts]
    if len(set(sizes)) > 1:
        raise TableError(f"{path}: vectors of train, dev and test have {sizes} numbers: these must be equal")
    return Parts(*parts)


def overlap(train: SentencePairs, test: SentencePairs) -> NDArray[np.int64]:
    """Return the rows of `test` whose pair is also in `train`, in either order of its sentences.

    >>> train = SentencePairs(["a cat", "a dog"], ["one cat", "one dog"], np.zeros(2))
    >>> test = SentencePairs(["a bird", "one dog"], ["a cat", "a dog"], np.zeros(2))
    >>> overlap(train, test)
    array([1])
    """
    seen = {frozenset(pair) for pair in zip(train.first, train.second, strict=True)}
    pairs = zip(test.first, test.second, strict=True)
    return np.array([row for row, pair in enumerate(pairs) if frozenset(pair) in seen], np.int64)


def dir_shots(scores: ArrayLike) -> NDArray[np.str_]:
    """Return ``"many"``, ``"medium"`` or ``"few"`` for each score from 0 to 5, by DIR's published lists.

    Use these regions to compare with published figures. They count bins of STS-B-DIR's training part with
    fewer than 30 rows as *few*, not fewer than 20 as the papers of DIR and VIR say: five bins of 20 to 27
    rows are few-shot. `LabelBins.regions` follows the papers. Scores and bin edges are compared in float32,
    as in DIR, so that 0.3 is in the bin that starts at 0.3; a score of 5 is in the last bin.

    >>> dir_shots([0.0, 0.1, 0.2, 2.5, 5.0])
    array(['many', 'few', 'medium', 'few', 'many'], dtype='<U6')
    """
    labels = checked_labels(scores, "scores")
    outside = (labels < 0) | (labels > 5)
    if outside.any():
        row = int(outside.argmax())
        raise ValueError(f"DIR's bins are for scores from 0 to 5: row {row} is {labels[row]}")
    edges = np.linspace(0, 5, DIR_BINS + 1).astype(np.float32)
    place = np.searchsorted(edges, labels.astype(np.float32), side="right") - 1
    shots = np.full(DIR_BINS + 1, "few", dtype="<U6")
    shots[list(DIR_MEDIUM)] = "medium"
    shots[[*DIR_MANY, DIR_BINS]] = "many"  # a score of 5 lies on the last edge
    return shots[place]


# -- lines and fields ----------------------------------------------------------------------------


def _text(path: Path) -> str:
    """A file's text; bytes that are not UTF-8 become lone surrogates, by which `_pair` finds their row."""
    if path.is_dir():
        raise TableError(f"{path} is a folder: name a CSV or tsv file in it")
    content = file_content(path, str(path))
    if content.startswith((b"\xff\xfe", b"\xfe\xff")):
        raise TableError(f"{path} is UTF-16: save it as UTF-8")
    if content.startswith(b"PAR1"):
        raise TableError(f"{path} is a Parquet file: save it as CSV")
    if b"\x00" in content.lstrip(b"\r\n").split(b"\n", 1)[0]:
        raise TableError(f"{path} is a binary file, or UTF-16 without its mark: save it as UTF-8 text")
    text = content.decode("utf-8", errors="surrogateescape").removeprefix("\ufeff")
    return text.replace("\r\n", "\n") if "\n" in text else text.replace("\r", "\n")


def _rows(text: str, quoted: bool | None) -> Iterator[tuple[int, Row]]:
    """Each row that is not blank and the number of its first line."""
    lines = text.split("\n")
    opening = next((line for line in lines if line.strip()), "")
    delimiter = "\t" if "\t" in opening else max(_CSV_DELIMITERS, key=opening.count)
    if quoted is None:
        titles = [title.strip() for title in opening.split(delimiter)]
        quoted = delimiter != "\t" or all(len(t) > 1 and t[0] == t[-1] == '"' for t in titles)
    at = 0
    while at < len(lines):
        row, taken = _row(lines, at, delimiter) if quoted else (lines[at].split(delimiter), 1)
        if isinstance(row, str) or any(field.strip() for field in row):
            yield at + 1, row
        at += taken


def _row(lines: Sequence[str], at: int, delimiter: str) -> tuple[Row, int]:
    """The row that starts at a line of CSV, and the number of lines it spans.

    Stray quotation marks within a line are ignored. A field over several lines must follow CSV's rules
    strictly: otherwise an open mark would swallow all rows up to the next mark. So it spoils only its line.
    """
    if '"' not in lines[at]:
        return lines[at].split(delimiter), 1
    try:
        alone = csv.reader([lines[at] + "\n", ""], delimiter=delimiter, skipinitialspace=True)
        row = next(alone)
        if alone.line_num == 1:
            return row, 1
        onwards = (lines[place] + "\n" for place in range(at, len(lines)))
        strict = csv.reader(onwards, delimiter=delimiter, skipinitialspace=True, strict=True)
        return next(strict), strict.line_num
    except csv.Error as error:
        if "limit" in str(error):
            limit = f"{csv.field_size_limit():,} characters"
            return f"a field of more than {limit}: is a quotation mark left open?", 1
        return "a quotation mark is left open", 1


def _places(
    opening: Fields, columns: tuple[Column, Column, Column] | None, name: str
) -> tuple[list[int], bool]:
    """The places of the two sentences and the score, and whether the first line names the columns."""
    titles = [_NOT_UTF8.sub("\ufffd", title.strip()) for title in opening]
    folded = [title.casefold() for title in titles]
    if columns is None:
        missing = [title for title in STSB_NAMES if title not in folded]
        if not missing:
            columns = STSB_NAMES
        elif len(titles) == max(STSB_PLACES) + 1:
            columns = STSB_PLACES
        else:
            several = "s" if len(missing) > 1 else ""
            raise TableError(
                f"{name} has no column{several} {', '.join(missing)}; its first line is {_shown(titles)}: "
                "name the columns of the sentences and the score, columns=(first, second, score)"
            )
    places = [] if isinstance(columns, str) else [_place(c, titles, folded, name) for c in columns]
    if len(places) != 3 or len(set(places)) != 3:
        raise ValueError(f"columns must be three different columns (first, second, score), got {columns!r}")
    by_place = not any(isinstance(column, str) for column in columns)
    return places, not (by_place and as_number(titles[places[2]]) is not None)


def _place(column: Column, titles: Fields, folded: Fields, name: str) -> int:
    if isinstance(column, bool) or not isinstance(column, str | int | np.integer):
        raise ValueError(f"a column must be a name or a place counted from 0, got {column!r}")
    if not isinstance(column, str):
        if not 0 <= column < len(titles):
            raise TableError(f"{name} has {len(titles)} columns, counted from 0: there is no column {column}")
        return int(column)
    sought, among = (column, titles) if column in titles else (column.casefold(), folded)
    if sought not in among:
        raise TableError(f"{name} has no column {column!r}{nearest(column, titles)}")
    if among.count(sought) > 1:
        places = [place for place, title in enumerate(among) if title == sought]
        raise TableError(
            f"{name} has {len(places)} columns named {column!r}: choose one by its place, {_shown(places)}"
        )
    return among.index(sought)


def _pair(
    row: Fields, places: Sequence[int], wanted: int | None, limits: tuple[float, float] | None
) -> tuple[str, str, float] | str:
    """Both sentences and their score, or the reason why the row cannot be used.

    `wanted` is the number of fields, if the first line names the columns.
    """
    if wanted is not None and len(row) != wanted:
        quoted = "; is a quotation mark left open?" if any("\n" in field for field in row) else ""
        return f"{len(row)} fields where the first line has {wanted}{quoted}"
    if len(row) <= max(places):
        return f"{len(row)} fields, but column {max(places)} (from 0) is needed"
    first, second, written = (row[place].strip() for place in places)
    text = first + second + written
    if not text.isascii() and _NOT_UTF8.search(text):
        return "bytes that are not UTF-8"
    if "\x00" in text:
        return "a zero byte, which is no text"
    if not first or not second:
        return f"the {'second' if first else 'first'} sentence is empty"
    score = as_number(written)
    if score is None:
        point = f": write {written.replace(',', '.')}" if _DECIMAL_COMMA.fullmatch(written) else ""
        return f"the score {_shown(written)} is not a number{point}"
    if not math.isfinite(score):
        return f"the score {_shown(written)} is not finite"
    if limits is not None and not limits[0] <= score <= limits[1]:
        return f"the score {_shown(written)} is not between {limits[0]:g} and {limits[1]:g}"
    return first, second, score


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:60]}..."


def _pair_vectors(stored: dict[str, NDArray[np.generic]], part: str, name: str) -> PairVectors:
    a, b, y = (stored[f"{part}_{what}"] for what in "aby")
    numeric = all(array.dtype.kind in "fiu" for array in (a, b, y))
    if not numeric or a.ndim != 2 or a.shape != b.shape or y.shape != a.shape[:1] or a.size == 0:
        held = ", ".join(f"{array.dtype} {array.shape}" for array in (a, b, y))
        raise TableError(
            f"{name}: {part}_a and {part}_b must be numbers (N, D) and {part}_y (N,), but they are {held}"
        )
    with np.errstate(over="ignore"):
        x = np.stack([a, b], axis=1).astype(np.float32)
    scores = y.astype(np.float64)
    for what, numbers in (("a", x[:, 0]), ("b", x[:, 1]), ("y", scores[:, None])):
        finite = np.isfinite(numbers).all(axis=1)
        if not finite.all():
            row = int(finite.argmin())
            raise TableError(
                f"{name}: row {row} of {part}_{what} holds a number that is not finite: write the file again"
            )
    return PairVectors(x, scores)
