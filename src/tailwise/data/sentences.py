"""Sentence pairs with a score: STS-B-DIR and any table of two texts and a number, row by row.

`read_pairs` says of every row it cannot use which line it is and why, and refuses or skips it as asked.
Words and their ids are in `tailwise.data.words`, their vectors in `tailwise.data.word_vectors`.
"""

from __future__ import annotations

import csv
import gzip
import itertools
import zipfile
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Generic, Literal, TypeVar, cast

import numpy as np
from numpy.typing import NDArray

from tailwise.choices import nearest
from tailwise.table_files import TableError

T = TypeVar("T")
OnError = Literal["raise", "skip"]
Column = str | int
Fields = list[str]

STSB_NAMES = ("sentence1", "sentence2", "score")
"""Names of the columns in GLUE's STS-B files."""
STSB_PLACES = (7, 8, 9)
"""Their places, where a file of the same layout names them otherwise."""
PARTS = ("train", "dev", "test")
_SHOWN_ROWS = 5
_CSV_DELIMITERS = (",", ";", "|")


@dataclass(frozen=True, eq=False)
class SentencePairs:
    """Pairs of sentences and how alike they are; `skipped` names the rows that were left out and why."""

    first: list[str]  # N
    second: list[str]  # N
    score: NDArray[np.float64]  # (N,)
    skipped: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not len(self.first) == len(self.second) == len(self.score):
            raise ValueError(
                f"{len(self.first)} first sentences, {len(self.second)} second ones and {len(self.score)} "
                "scores: every pair needs all three"
            )

    def __len__(self) -> int:
        return len(self.first)

    @cached_property
    def sentences(self) -> list[str]:
        """Every sentence: all first ones, then all second ones. 2N"""
        return [*self.first, *self.second]


@dataclass(frozen=True, eq=False)
class PairVectors:
    """Sentence pairs as two vectors each, with their scores."""

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
    on_error: OnError = "raise",
) -> SentencePairs:
    """Read sentence pairs and scores from a tsv or CSV file, gzip or not.

    Without `columns` the file is laid out as GLUE's STS-B: a line of names, the sentences in
    ``sentence1`` and ``sentence2`` (or columns 7 and 8, counted from 0), the score in ``score`` (or
    column 9). `columns` names others, or gives their places; with places, a first line whose score is
    a number is a row. Between tabs a quotation mark is a character like any other, as in GLUE; in CSV
    (commas, semicolons or bars) it quotes.

    A row with a missing or surplus field, an empty sentence, a score that is not a finite number or
    bytes that are not UTF-8 is an error that names its line, or is left out and listed in ``skipped``
    (`on_error` ``"raise"``, ``"skip"``).
    """
    if on_error not in ("raise", "skip"):
        raise ValueError(f"unknown on_error {on_error!r}{nearest(str(on_error), ('raise', 'skip'))}")
    text = _text(Path(path))
    rows = _rows(text, str(path))
    line, opening = next(rows)
    places, named = _places(opening, columns, str(path))
    body = rows if named else itertools.chain([(line, opening)], rows)
    pairs, bad = _checked(body, places, len(opening) if named else 0)
    if not pairs and not bad:
        raise TableError(f"{path} holds a line of column names but no rows")
    if bad and (on_error == "raise" or not pairs):
        shown = "; ".join(bad[:_SHOWN_ROWS]) + ("; ..." if len(bad) > _SHOWN_ROWS else "")
        remedy = "mend them, or leave them out with on_error='skip'" if pairs else "check the columns"
        raise TableError(
            f"{path}: {len(bad)} of {len(pairs) + len(bad)} rows cannot be used: {shown}: {remedy}"
        )
    first, second, score = zip(*pairs, strict=True)
    return SentencePairs(list(first), list(second), np.array(score, np.float64), tuple(bad))


def load_stsb_dir(folder: str | Path, *, on_error: OnError = "raise") -> Parts[SentencePairs]:
    """Read STS-B-DIR, the split of DIR (Yang et al., 2021) with balanced dev and test parts.

    The folder holds ``train.tsv``, ``dev.tsv`` and ``test.tsv``, or ``train_new.tsv`` and so on, as
    DIR's script writes them beside the original files; these then count.
    """
    root = Path(folder)
    if not root.is_dir():
        raise TableError(f"{root} is not a folder: it must hold train.tsv, dev.tsv and test.tsv")
    paths = []
    for part in PARTS:
        named = [root / f"{part}_new.tsv", root / f"{part}.tsv"]
        found = next((path for path in named if path.is_file()), None)
        if found is None:
            raise TableError(f"{root} holds no {part}.tsv: STS-B-DIR is train.tsv, dev.tsv and test.tsv")
        paths.append(found)
    return Parts(*(read_pairs(path, on_error=on_error) for path in paths))


def load_sentence_vectors(path: str | Path) -> Parts[PairVectors]:
    """Read frozen sentence vectors: ``{train,dev,test}_{a,b,y}`` of an npz file, in float32."""
    stored = read_arrays(Path(path), [f"{part}_{what}" for part in PARTS for what in "aby"])
    return Parts(*(_pair_vectors(stored, part, str(path)) for part in PARTS))


def overlap(train: SentencePairs, test: SentencePairs) -> NDArray[np.int64]:
    """Return the rows of `test` whose pair, in either order, is in `train` as well, ascending.

    >>> train = SentencePairs(["a cat", "a dog"], ["one cat", "one dog"], np.zeros(2))
    >>> test = SentencePairs(["a bird", "one dog"], ["a cat", "a dog"], np.zeros(2))
    >>> overlap(train, test)
    array([1])
    """
    seen = {frozenset(pair) for pair in zip(train.first, train.second, strict=True)}
    pairs = zip(test.first, test.second, strict=True)
    return np.array([row for row, pair in enumerate(pairs) if frozenset(pair) in seen], np.int64)


# -- lines and fields ----------------------------------------------------------------------------


def _text(path: Path) -> str:
    """A file's text; bytes that are not UTF-8 become lone surrogates, for their row to be told by."""
    content = read_content(path)
    if content.startswith((b"\xff\xfe", b"\xfe\xff")):
        raise TableError(f"{path} is UTF-16: save it as UTF-8")
    text = content.decode("utf-8", errors="surrogateescape").removeprefix("\ufeff")
    if not text.strip():
        raise TableError(f"{path} is empty: it needs a line of column names and rows below it")
    return text.replace("\r\n", "\n") if "\n" in text else text.replace("\r", "\n")


def read_content(path: Path) -> bytes:
    """All bytes of a file, unpacked if they are gzip."""
    if path.is_dir():
        raise TableError(f"{path} is a folder: name a file in it")
    if not path.exists():
        raise TableError(f"{path} does not exist")
    try:
        content = path.read_bytes()
        return gzip.decompress(content) if content.startswith(b"\x1f\x8b") else content
    except (OSError, EOFError, zlib.error) as error:
        raise TableError(f"cannot read {path}: {getattr(error, 'strerror', None) or error}") from None


def read_arrays(path: Path, names: Sequence[str]) -> dict[str, NDArray[np.generic]]:
    """The named arrays of an npz file, read without pickle."""
    if not path.is_file():
        raise TableError(f"{path} does not exist: name an npz file")
    try:
        with np.load(path, allow_pickle=False) as stored:
            missing = [name for name in names if name not in stored]
            if missing:
                there = ", ".join(stored) or "nothing"
                raise TableError(f"{path} has no array {missing[0]!r}: it holds {there}")
            return {name: stored[name] for name in names}
    except TableError:
        raise
    except (OSError, ValueError, EOFError, AttributeError, zipfile.BadZipFile, zlib.error) as error:
        raise TableError(f"{path} is not a readable npz file: {error}") from None


def _rows(text: str, name: str) -> Iterator[tuple[int, Fields]]:
    """Each row that is not blank, with the number of its first line."""
    opening = text.lstrip("\n").partition("\n")[0]
    if "\t" in opening:
        for line, content in enumerate(text.split("\n"), start=1):
            if content.strip():
                yield line, content.split("\t")
        return
    delimiter = max(_CSV_DELIMITERS, key=opening.count)
    reader = csv.reader(text.split("\n"), delimiter=delimiter, skipinitialspace=True)
    line = 1
    try:
        for row in reader:
            if any(field.strip() for field in row):
                yield line, row
            line = reader.line_num + 1
    except csv.Error as error:
        raise TableError(f"{name}: line {line} cannot be read ({error}): mend it") from None


def _opened(
    rows: Iterator[tuple[int, Fields]], first: tuple[int, Fields] | None
) -> Iterator[tuple[int, Fields]]:
    if first is not None:
        yield first
    yield from rows


def _places(
    opening: Fields, columns: tuple[Column, Column, Column] | None, name: str
) -> tuple[tuple[int, int, int], bool]:
    """Where the two sentences and the score are, and whether the first line names the columns."""
    titles = [title.strip() for title in opening]
    folded = [title.casefold() for title in titles]
    if columns is None:
        if all(title in folded for title in STSB_NAMES):
            columns = STSB_NAMES
        elif len(titles) > max(STSB_PLACES):
            columns = STSB_PLACES
        else:
            raise TableError(
                f"{name} has no columns {', '.join(STSB_NAMES)}; its first line is {_shown(titles)}: "
                "say which columns hold the sentences and the score, columns=(first, second, score)"
            )
    if len(columns) != 3 or len(set(columns)) != 3:
        raise ValueError(f"columns are three different ones, (first, second, score); got {columns!r}")
    places = tuple(_place(column, titles, folded, name) for column in columns)
    by_place = all(isinstance(column, int) for column in columns)
    named = not (by_place and _number(titles[places[2]]) is not None)
    return cast("tuple[int, int, int]", places), named


def _place(column: Column, titles: Fields, folded: Fields, name: str) -> int:
    if isinstance(column, int):
        if not 0 <= column < len(titles):
            raise TableError(f"{name} has {len(titles)} columns, counted from 0: there is no column {column}")
        return column
    if column in titles:
        return titles.index(column)
    if column.casefold() in folded:
        return folded.index(column.casefold())
    raise TableError(f"{name} has no column {column!r}{nearest(column, titles)}")


def _checked(
    rows: Iterator[tuple[int, Fields]], places: tuple[int, int, int], wanted: int
) -> tuple[list[tuple[str, str, float]], list[str]]:
    """Usable pairs, and ``line N: reason`` for each row that is not. Without names `wanted` is 0."""
    pairs, bad = [], []
    for line, row in rows:
        if wanted and len(row) != wanted:
            bad.append(f"line {line}: {len(row)} fields where the first line has {wanted}")
            continue
        if len(row) <= max(places):
            bad.append(f"line {line}: {len(row)} fields, but column {max(places)} (from 0) is wanted")
            continue
        first, second, written = (row[place].strip() for place in places)
        score = _number(written)
        if any("\udc80" <= c <= "\udcff" for c in first + second + written):
            bad.append(f"line {line}: bytes that are not UTF-8")
        elif not first or not second:
            bad.append(f"line {line}: the {'second' if first else 'first'} sentence is empty")
        elif score is None:
            bad.append(f"line {line}: the score {_shown(written)} is not a number")
        elif not np.isfinite(score):
            bad.append(f"line {line}: the score {_shown(written)} is not finite")
        else:
            pairs.append((first, second, score))
    return pairs, bad


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None


def _shown(value: object) -> str:
    text = ascii(value) if "\udc80" <= max(str(value), default="") <= "\udcff" else repr(value)
    return text if len(text) <= 60 else f"{text[:60]}..."


def _pair_vectors(stored: dict[str, NDArray[np.generic]], part: str, name: str) -> PairVectors:
    a, b, y = (stored[f"{part}_{what}"] for what in "aby")
    if a.ndim != 2 or a.shape != b.shape or y.shape != a.shape[:1]:
        raise TableError(
            f"{name}: {part}_a and {part}_b must be (N, D) and {part}_y (N,), "
            f"but they are {a.shape}, {b.shape} and {y.shape}"
        )
    x = np.stack([a, b], axis=1).astype(np.float32)
    scores = y.astype(np.float64)
    if not (np.isfinite(x).all() and np.isfinite(scores).all()):
        raise TableError(f"{name}: part {part!r} holds numbers that are not finite: make the file again")
    return PairVectors(x, scores)
