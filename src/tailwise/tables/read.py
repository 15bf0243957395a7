"""Read tables on disk.

`read_table` takes CSV of any delimiter, encoding and compression, or Parquet, and returns a DataFrame. If
it cannot, it raises a `TableError` that names the file and the line or column, and says what to do.
"""

from __future__ import annotations

import codecs
import csv
import gzip
import io
import re
import sys
import warnings
import zlib
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tailwise.lookup import nearest

if TYPE_CHECKING:
    import pandas as pd

STANDARD = "-"
"""The name of standard input and output."""
DELIMITERS = (",", ";", "\t", "|", " ")
MAX_UNPACKED = 1 << 28
"""A gzip file may unpack to this many bytes, or to 200 times its size if that is more."""
_SNIFFED_LINES = 60
_OTHER_FORMATS = (
    (b"PK\x03\x04", "a ZIP archive or an Excel workbook: unpack it, or save the sheet as CSV"),
    (b"\xd0\xcf\x11\xe0", "an old Excel workbook: save the sheet as CSV"),
    (b"%PDF", "a PDF document: give a CSV or Parquet file"),
    (b"\x89PNG", "an image: give a CSV or Parquet file"),
    (b"BZh", "compressed with bzip2: unpack it first"),
    (b"\xfd7zXZ\x00", "compressed with xz: unpack it first"),
    (b"\x28\xb5\x2f\xfd", "compressed with zstd: unpack it first"),
    (b"ARROW1", "an Arrow or Feather file: save it as Parquet or CSV"),
    (b"SQLite format 3", "an SQLite database: export the table as CSV"),
)
_BOMS = (
    (codecs.BOM_UTF8, "utf-8-sig"),
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)
_GUESSED_BYTES = 200_000
_JSON = re.compile(rb"\s*(\[\s*)?\{\s*[\"}]")
"""How an object or a list of objects begins."""
_DECIMAL_COMMA = re.compile(r"[+-]?\d+(,\d+)?")
_PERHAPS_THOUSANDS = re.compile(r"[+-]?([1-9]\d{0,2},\d{3}|\d+)")


class TableError(ValueError):
    """A table that cannot be read or used; the message says where and what to do."""


def read_table(source: str | Path, encoding: str | None = None) -> pd.DataFrame:
    """Read CSV (any delimiter, gzip or not) or Parquet; ``-`` is standard input.

    Unless `encoding` is given, text is UTF-8, UTF-16 or UTF-32, or else western (Windows-1252 or Latin-1);
    ``table.attrs["encoding"]`` names the latter. Text that is probably of another encoding is an error.
    Columns without a name, such as the row numbers that pandas writes, are left out;
    ``table.attrs["unnamed"]`` is their number. Columns such as ``7%`` or ``12 km`` become numbers;
    ``table.attrs["units"]`` has their units.
    """
    name = "standard input" if str(source) == STANDARD else str(source)
    return parse_table(file_content(source, name), name, encoding)


def parse_table(content: bytes, name: str, encoding: str | None = None) -> pd.DataFrame:
    """Return the table in the content of a file, as `read_table` does; `name` is its name in errors."""
    if content.startswith(b"PAR1"):
        return _parquet(content, name)
    text, guessed = decoded(content, name) if encoding is None else (read_as(content, encoding, name), None)
    if "\x00" in text:
        line = text.count("\n", 0, text.index("\x00")) + 1
        raise TableError(f"{name} holds a NUL character in line {line}: remove it, or write the file again")
    table = _delimited(text, name)
    if guessed is not None:
        table.attrs["encoding"] = guessed
    return table


def read_as(content: bytes, encoding: str, name: str) -> str:
    """Return a file's text in the encoding that the user named."""
    try:
        kind = codecs.lookup(encoding)
        return content.decode(kind.name).removeprefix("\ufeff")
    except UnicodeDecodeError as error:
        raise TableError(f"{name} is not {encoding}: byte {error.start} does not fit") from None
    except (LookupError, TypeError, AssertionError, ValueError):
        raise TableError(
            f"unknown encoding {encoding!r}: use a name such as utf-8, shift_jis, gb18030, big5 or koi8-r"
        ) from None


def decoded(content: bytes, name: str) -> tuple[str, str | None]:
    """Return a file's text, and its encoding where that is a guess: Windows-1252 or Latin-1.

    Other encodings are not guessed: short texts would become other texts without a word.
    """
    import charset_normalizer

    encoding, guessed = next((e for bom, e in _BOMS if content.startswith(bom)), None), None
    wide = b"\x00" in content[:4096]
    if encoding is None and not wide:
        with suppress(UnicodeDecodeError):
            return content.decode(), None
    if encoding is None:
        candidates = ["utf_16_le", "utf_16_be"] if wide else ["cp1252", "latin_1"]
        best = charset_normalizer.from_bytes(content[:_GUESSED_BYTES], cp_isolation=candidates).best()
        if best is None and wide:
            raise TableError(f"{name} is a binary file, not a table: give a CSV or Parquet file")
        if best is None:
            raise TableError(
                f"{name} is neither UTF-8 nor western text: save it as UTF-8, or name its encoding, such as "
                "shift_jis, gb18030, big5 or koi8-r"
            )
        encoding, guessed = best.encoding, None if wide else best.encoding
    try:
        return content.decode(encoding), guessed
    except UnicodeDecodeError as error:
        raise TableError(
            f"{name} is damaged: byte {error.start} is not {encoding}; save it again as UTF-8"
        ) from None


def file_content(source: str | Path, name: str) -> bytes:
    """Return the bytes of a file that may be a table, unpacked if it is gzip."""
    if str(source) == STANDARD:
        content = sys.stdin.buffer.read()
    else:
        path = Path(source)
        if path.is_dir():
            raise TableError(f"{name} is a folder: name a CSV or Parquet file in it")
        if not path.exists():
            raise TableError(f"{name} does not exist{_similar_files(path)}")
        if not path.is_file():
            raise TableError(f"{name} is a pipe or a device: name a file, or - for standard input")
        try:
            content = path.read_bytes()
        except OSError as error:
            raise TableError(f"cannot read {name}: {error.strerror or error}") from None
    if content.startswith(b"\x1f\x8b"):
        try:
            content = _unpacked(content, name)
        except (OSError, EOFError, zlib.error) as error:
            raise TableError(f"{name} is a damaged gzip file ({error}): copy or download it again") from None
    if not content.strip():
        raise TableError(f"{name} is empty: it needs a line of column names and rows below it")
    refuse_other_formats(content, name)
    return content


def _unpacked(content: bytes, name: str) -> bytes:
    allowed = max(MAX_UNPACKED, 200 * len(content))  # text rarely shrinks to less than a hundredth
    with gzip.GzipFile(fileobj=io.BytesIO(content)) as file:
        data = file.read(allowed + 1)
    if len(data) > allowed:
        raise TableError(f"{name} unpacks to more than {allowed} bytes: unpack it yourself if you trust it")
    return data


def refuse_other_formats(content: bytes, name: str) -> None:
    """Raise an error if a file starts like an archive, a document, an image or a database."""
    for magic, kind in _OTHER_FORMATS:
        if content.startswith(magic):
            raise TableError(f"{name} is {kind}")
    if _JSON.match(content):
        raise TableError(f"{name} is a JSON file: save the table as CSV or Parquet")


def _similar_files(path: Path) -> str:
    try:
        there = [p.name for p in path.parent.iterdir()]
    except OSError:
        return f": there is no folder {path.parent}"
    hint = nearest(path.name, there) if there else ""
    return hint if "did you mean" in hint else f": is it in another folder than {path.parent.resolve()}?"


def _delimited(text: str, name: str) -> pd.DataFrame:
    import pandas as pd

    # Skip blank lines before the header. Excel may write the delimiter first, as in "sep=;".
    text = text.replace("\r\n", "\n").replace("\r", "\n").lstrip("\n")
    marked = re.match(r"sep=(.)\n", text)
    text = text[marked.end() :].lstrip("\n") if marked else text
    delimiter = marked.group(1) if marked else _delimiter(text)
    header = _header(text, delimiter, name)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", pd.errors.ParserWarning)
            table = pd.read_csv(
                io.StringIO(text),
                sep=delimiter,
                index_col=False,
                header=0,
                names=[*range(len(header))],
                skipinitialspace=True,
                low_memory=False,
            )
    except pd.errors.ParserWarning:
        raise TableError(
            f"{name} has rows with more cells than the {len(header)} column names of its first line: name "
            "every column, or remove the delimiters at the ends of lines"
        ) from None
    except pd.errors.ParserError as error:
        raise TableError(f"{name} {_parser_message(str(error), delimiter)}") from None
    except (ValueError, OverflowError, csv.Error) as error:
        raise TableError(f"{name} cannot be read as a table: {error}") from None
    if len(table) == 0:
        raise TableError(f"{name} has a line of column names but no rows")
    kept = [place for place, title in enumerate(header) if title]
    table = table[kept].set_axis([header[place] for place in kept], axis=1)
    table.attrs["unnamed"] = len(header) - len(kept)
    return _with_numbers(table, delimiter)


def _delimiter(text: str) -> str:
    """The delimiter that splits the first lines into the same number of cells, at least two; else a comma."""
    lines = [line for line in text[:200_000].split("\n", _SNIFFED_LINES)[:_SNIFFED_LINES] if line.strip()]

    def quality(delimiter: str) -> tuple[float, int]:
        try:
            widths = [len(row) for row in csv.reader(lines, delimiter=delimiter, skipinitialspace=True)]
        except csv.Error:
            return 0.0, 0
        if not widths or widths[0] < 2:
            return 0.0, 0
        return sum(width == widths[0] for width in widths) / len(widths), widths[0]

    # Rounded, so that one broken line does not make a space the delimiter of a table with commas.
    scored = {d: quality(d) for d in DELIMITERS}
    best = max(DELIMITERS, key=lambda d: (round(scored[d][0], 1), d != " ", scored[d][1]))
    return best if scored[best][1] > 1 else ","


def _header(text: str, delimiter: str, name: str) -> list[str]:
    try:
        first = next(csv.reader(io.StringIO(text), delimiter=delimiter, skipinitialspace=True, strict=True))
    except (csv.Error, StopIteration):
        raise TableError(
            f"{name}: the line of column names cannot be read; is a quotation mark left open?"
        ) from None
    header = [title.strip() for title in first]
    if not any(header):
        raise TableError(f"{name}: the first line names no columns")
    for title in header:
        if title and header.count(title) > 1:
            places = [str(i + 1) for i, other in enumerate(header) if other == title]
            raise TableError(
                f"{name}: columns {' and '.join(places)} are both named {title!r}: rename all but one"
            )
    return header


def _parser_message(message: str, delimiter: str) -> str:
    match = re.search(r"Expected (\d+) fields in line (\d+), saw (\d+)", message)
    if match:
        wanted, line, saw = match.groups()
        shown = {"\t": "tab", " ": "space"}.get(delimiter, delimiter)
        return (
            f"has {saw} cells in line {line}, but {wanted} columns (delimiter {shown!r}): quote text that "
            "contains the delimiter, or correct that line"
        )
    match = re.search(r"EOF inside string starting at row (\d+)", message)
    if match:
        return (
            f"has a quotation mark in line {int(match.group(1)) + 1} that is never closed: correct that line"
        )
    return f"cannot be read as a table: {message.strip()}"


def _with_numbers(table: pd.DataFrame, delimiter: str) -> pd.DataFrame:
    """Turn text columns of numbers with decimal commas, or with one and the same unit, into numbers.

    A comma is decimal in a file with semicolons, and in a column where most commas cannot separate
    thousands. A column in which 1,234 may mean a thousand stays text. Other columns are no evidence.
    """
    import pandas as pd

    units: dict[str, str] = {}
    for title in table.columns:
        column = table[title]
        if column.dtype.kind in "ifb":
            continue
        first = next((str(cell) for cell in column if not pd.isna(cell)), "")
        if not _DECIMAL_COMMA.fullmatch(first.strip()):  # most columns of text end here
            if (numbers := without_unit(column)) is not None:
                table[title], units[title] = numbers
            continue
        cells = column.astype(str).str.strip().where(column.notna())
        texts = cells.dropna()
        if not texts.str.fullmatch(_DECIMAL_COMMA).all():
            continue
        thousands = texts[texts.str.contains(",")].str.fullmatch(_PERHAPS_THOUSANDS)
        if delimiter == ";" or thousands.mean() < 0.5:
            table[title] = cells.str.replace(",", ".").astype(float)
    if units:
        table.attrs["units"] = units
    return table


def _parquet(content: bytes, name: str) -> pd.DataFrame:
    import pandas as pd

    try:
        table = pd.read_parquet(io.BytesIO(content), engine="pyarrow")
    except ImportError:
        raise TableError(
            f"{name} is a Parquet file, and reading those needs pyarrow: pip install 'tailwise[big]'"
        ) from None
    except Exception as error:
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        raise TableError(f"{name} is a damaged Parquet file ({reason}): copy or write it again") from None
    if len(table) == 0:
        raise TableError(f"{name} has columns but no rows")
    if table.columns.nlevels > 1:
        levels = table.columns.nlevels
        raise TableError(
            f"{name} has column names of {levels} levels: write it with one name for each column"
        )
    # A named index that pandas wrote is a column to other programs.
    named = [name for name in table.index.names if name is not None and name not in table.columns]
    table = table.reset_index(level=named) if named else table
    table = table.rename(columns=str).reset_index(drop=True)
    for title, kind in zip(table.columns, table.dtypes, strict=True):
        if kind.kind != "O" or table.columns.tolist().count(title) > 1:
            continue
        if table[title].map(lambda cell: isinstance(cell, bytes)).any():
            try:
                table[title] = table[title].map(_as_text)
            except UnicodeDecodeError:
                problem = f"column {title!r} holds bytes that are not text"
                raise TableError(f"{name}: {problem}: leave it out, or write it as text or numbers") from None
    return table


def _as_text(cell: Any) -> Any:
    return cell.decode() if isinstance(cell, bytes) else cell


# -- columns of numbers with a unit -----------------------------------------------------------------

AGREEING = 0.95
"""This share of the cells must be numbers with one and the same unit; the other cells become missing."""
_CELL = re.compile(
    r"(?P<sign>[+-]?)\s?(?P<before>[€$£¥]?)\s?(?P<number>\d[\d.,'\s]*?)\s?(?P<after>[€$£¥%]|°?[^\W\d_]{1,12}[²³]?)?"
)
_GROUPED = re.compile(r"[1-9]\d{0,2}[.,]\d{3}")


def without_unit(column: pd.Series[Any]) -> tuple[pd.Series[Any], str] | None:
    """Return the numbers and the unit of a column of texts; None unless nearly all cells agree.

    The decimal sign is that of the whole column. A column in which ``1.257`` may mean a thousand stays text.
    """
    import pandas as pd

    texts = column.astype(str).str.strip().where(column.notna()).dropna()
    first = _CELL.fullmatch(texts.iloc[0]) if len(texts) else None
    if first is None or not first["before"] + (first["after"] or ""):  # most columns of text end here
        return None
    cells = texts.map(_CELL.fullmatch).dropna()
    units = cells.map(lambda cell: cell["before"] + (cell["after"] or ""))
    unit, count = Counter(units).most_common(1)[0]
    if not unit or count < AGREEING * len(texts):
        return None
    numbers = cells[units == unit].map(lambda cell: cell["sign"] + re.sub(r"['\s]", "", cell["number"]))
    decimal = _decimal_sign([number.lstrip("+-") for number in numbers])
    if decimal is None:
        return None
    plain = numbers.str.replace("." if decimal == "," else ",", "").str.replace(decimal, ".")
    return pd.to_numeric(plain, errors="coerce").reindex(column.index).astype(float), unit


def _decimal_sign(numbers: Sequence[str]) -> str | None:
    """Return the sign before the decimals, which all numbers must have in common; None if it is open."""
    decided, open_ = set(), False
    for number in numbers:
        signs = re.findall(r"[.,]", number)
        if len(set(signs)) == 2:  # 1.257,33
            decided.add(signs[-1])
        elif len(signs) > 1:  # 1.257.000
            decided.add("," if signs[0] == "." else ".")
        elif signs and _GROUPED.fullmatch(number):
            open_ = True
        else:
            decided.update(signs)
    if len(decided) > 1 or (open_ and not decided):
        return None
    return decided.pop() if decided else "."
