"""Tables on disk: read CSV of any delimiter, encoding and compression, or Parquet; write either.

If a table cannot be read, a `TableError` names the file and the line or column, and says what to do.
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
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tailwise.lookup import nearest
from tailwise.writing import write_atomically

if TYPE_CHECKING:
    import pandas as pd

STANDARD = "-"
"""The name of standard input and output."""
DELIMITERS = (",", ";", "\t", "|", " ")
MAX_UNPACKED = 1 << 28
"""A gzip file may unpack to this many bytes, or to 200 times its size if that is more."""
_SNIFFED_LINES = 60
_OTHER_FORMATS = (
    (rb"PK\x03\x04", "a ZIP archive or an Excel workbook: unpack it, or save the sheet as CSV"),
    (rb"\xd0\xcf\x11\xe0", "an old Excel workbook: save the sheet as CSV"),
    (rb"%PDF", "a PDF document: give a CSV or Parquet file"),
    (rb"BZh|\xfd7zXZ\x00|\x28\xb5\x2f\xfd", "compressed in another way than gzip: unpack it first"),
    (rb"\s*(\[\s*)?\{\s*[\"}]", "a JSON file: save the table as CSV or Parquet"),
)
_BOMS = (
    (codecs.BOM_UTF8, "utf-8-sig"),
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)
_GUESSED_BYTES = 200_000


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
    text, guessed = _decoded(content, name, encoding)
    if "\x00" in text:
        line = text.count("\n", 0, text.index("\x00")) + 1
        raise TableError(f"{name} holds a NUL character in line {line}: remove it, or write the file again")
    table = _delimited(text, name)
    if guessed is not None:
        table.attrs["encoding"] = guessed
    return table


def _decoded(content: bytes, name: str, asked: str | None) -> tuple[str, str | None]:
    """Return a file's text, and its encoding where that is a guess: Windows-1252 or Latin-1.

    Other encodings are not guessed: short texts would become other texts without a word.
    """
    marked = next((encoding for bom, encoding in _BOMS if content.startswith(bom)), "utf-8")
    try:
        return content.decode(codecs.lookup(asked or marked).name).removeprefix("\ufeff"), None
    except UnicodeDecodeError as error:
        if asked is not None or marked != "utf-8":
            problem = f"byte {error.start} is not {asked or marked}"
            raise TableError(f"{name} is damaged or in another encoding: {problem}") from None
    except (LookupError, TypeError, AssertionError, ValueError):
        raise TableError(
            f"unknown encoding {asked!r}: use a name such as utf-8, shift_jis, gb18030, big5 or koi8-r"
        ) from None
    import charset_normalizer

    best = charset_normalizer.from_bytes(content[:_GUESSED_BYTES], cp_isolation=["cp1252", "latin_1"]).best()
    if best is None or b"\x00" in content:
        raise TableError(
            f"{name} is neither UTF-8 nor western text: unless it is a binary file, save it as UTF-8, or "
            "name its encoding, such as shift_jis, gb18030, big5 or koi8-r"
        )
    with suppress(UnicodeDecodeError):
        return content.decode(best.encoding), best.encoding
    return content.decode("latin_1"), "latin_1"


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
    for magic, kind in _OTHER_FORMATS:
        if re.match(magic, content):
            raise TableError(f"{name} is {kind}")
    return content


def _unpacked(content: bytes, name: str) -> bytes:
    allowed = max(MAX_UNPACKED, 200 * len(content))  # text rarely shrinks to less than a hundredth
    with gzip.GzipFile(fileobj=io.BytesIO(content)) as file:
        data = file.read(allowed + 1)
    if len(data) > allowed:
        raise TableError(f"{name} unpacks to more than {allowed} bytes: unpack it yourself if you trust it")
    return data


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

    What a comma means is judged column by column: other columns are no evidence.
    """
    units: dict[str, str] = {}
    for title in table.columns:
        if table[title].dtype.kind not in "ifb" and (read := _numbers_of(table[title], delimiter)):
            table[title], unit = read
            units |= {title: unit} if unit else {}
    if units:
        table.attrs["units"] = units
    return table


def _numbers_of(column: pd.Series[Any], delimiter: str) -> tuple[pd.Series[Any], str] | None:
    """Return the numbers and the unit of a column of texts; None unless they are clear.

    Numbers without a unit may have decimal commas, in every cell. With a unit they may also have thousands
    separated, and cells that are no such number become missing if they are few.
    """
    import pandas as pd

    texts = column.dropna().astype(str).str.strip()
    if texts.empty or _CELL.fullmatch(texts.iloc[0]) is None:  # most columns of text end here
        return None
    cells = texts.map(_CELL.fullmatch).dropna()
    units = cells.map(lambda cell: cell["before"] + (cell["after"] or ""))
    unit, count = Counter(units).most_common(1)[0]
    numbers = cells[units == unit].map(lambda cell: cell["sign"] + re.sub(r"['\s]", "", cell["number"]))
    if count < (AGREEING if unit else 1) * len(texts):
        return None
    if not unit and not texts.str.fullmatch(_DECIMAL_COMMA).all():
        return None
    decimal = _decimal_sign(numbers.str.lstrip("+-"), delimiter)
    if decimal is None or (decimal == "." and not unit):
        return None
    plain = numbers.str.replace("." if decimal == "," else ",", "").str.replace(decimal, ".")
    return pd.to_numeric(plain, errors="coerce").reindex(column.index).astype(float), unit


def _decimal_sign(numbers: Iterable[str], delimiter: str) -> str | None:
    """Return the sign before the decimals, which all numbers must have in common; None if it is open.

    A single sign before three digits, as in 1.257, may separate thousands, unless it is a comma in a file
    with semicolons. More than half of the numbers with a sign must be clear.
    """
    decided, open_ = Counter[str](), 0
    for number in numbers:
        signs = re.findall(r"[.,]", number)
        if len(signs) > 1:  # 1.257,33 or 1.257.000
            decided[signs[-1] if len(set(signs)) == 2 else {".": ",", ",": "."}[signs[0]]] += 1
        elif signs and _GROUPED.fullmatch(number) and (signs[0], delimiter) != (",", ";"):
            open_ += 1
        elif signs:
            decided[signs[0]] += 1
    if len(decided) > 1 or 0 < open_ >= decided.total():
        return None
    return next(iter(decided), ".")


AGREEING = 0.95
"""This share of the cells must be numbers with one and the same unit; the other cells become missing."""
_DECIMAL_COMMA = re.compile(r"[+-]?\d+(,\d+)?")
_CELL = re.compile(
    r"(?P<sign>[+-]?)\s?(?P<before>[€$£¥]?)\s?(?P<number>\d(?:[\d.,'\s]*\d)?)\s?(?P<after>[€$£¥%]|°?[^\W\d_]{1,12}[²³]?)?"
)
_GROUPED = re.compile(r"[1-9]\d{0,2}[.,]\d{3}")


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
                table[title] = table[title].map(
                    lambda cell: cell.decode() if isinstance(cell, bytes) else cell
                )
            except UnicodeDecodeError:
                problem = f"column {title!r} holds bytes that are not text"
                raise TableError(f"{name}: {problem}: leave it out, or write it as text or numbers") from None
    return table


# -- write -----------------------------------------------------------------------------------------


def check_table_name(path: Path) -> None:
    """Raise an error if the name does not end in a format that `write_table` knows."""
    ending = path.name.lower().removesuffix(".gz").rpartition(".")[2] if "." in path.name else "csv"
    if ending not in ("csv", "tsv", "txt", "parquet", "pq"):
        raise TableError(f"cannot write {path} as a table: use .csv, .csv.gz, .tsv or .parquet")


def write_table(table: pd.DataFrame, path: str | Path) -> None:
    """Write CSV (``.csv``, ``.csv.gz``), tab-separated (``.tsv``) or Parquet; ``-`` is standard output."""
    write_chunks([table], path)


def write_chunks(chunks: Iterable[pd.DataFrame], path: str | Path) -> int:
    """Write tables one after another to one file, as `write_table` does; return the number of rows.

    The file appears when all of them are written. Parquet takes the types of the columns from the first.
    """
    name, counts = Path(path).name.lower(), [0]

    def counted() -> Iterator[pd.DataFrame]:
        for chunk in chunks:
            counts.append(len(chunk))
            yield chunk

    if str(path) == STANDARD:
        _write_text(counted(), sys.stdout, ",")
        sys.stdout.flush()
    else:
        write = _write_parquet if name.endswith((".parquet", ".pq")) else _write_file
        write_atomically(Path(path), lambda part: write(counted(), part, name))
    return sum(counts)


def _write_file(chunks: Iterable[pd.DataFrame], part: Path, name: str) -> None:
    with ExitStack() as opened:
        file: Any = opened.enter_context(part.open("wb"))
        if name.endswith(".gz"):
            file = opened.enter_context(gzip.GzipFile(filename="", mode="wb", fileobj=file, mtime=0))
        text = opened.enter_context(io.TextIOWrapper(file, encoding="utf-8", newline=""))
        _write_text(chunks, text, "\t" if ".tsv" in name else ",")


def _write_text(chunks: Iterable[pd.DataFrame], file: Any, delimiter: str) -> None:
    for number, chunk in enumerate(chunks):
        chunk.to_csv(file, index=False, sep=delimiter, lineterminator="\n", header=number == 0)


def _write_parquet(chunks: Iterable[pd.DataFrame], part: Path, name: str) -> None:
    try:
        import pyarrow as pa
        import pyarrow.parquet as pq
    except ImportError:
        raise TableError("writing Parquet needs pyarrow: pip install 'tailwise[big]'") from None
    with ExitStack() as opened:
        writer = None
        for chunk in chunks:
            table = pa.Table.from_pandas(chunk, schema=writer and writer.schema, preserve_index=False)
            if writer is None:
                for place, field in enumerate(table.schema):
                    if pa.types.is_null(field.type):  # a later table may have texts there
                        texts = table.column(place).cast(pa.string())
                        table = table.set_column(place, field.with_type(pa.string()), texts)
                writer = opened.enter_context(pq.ParquetWriter(part, table.schema))
            writer.write_table(table)
