"""Objects of scikit-learn and skrub as bytes, by skops instead of pickle."""

from __future__ import annotations

import io
import json
import math
import zipfile
from collections.abc import Callable
from typing import Any

from numpy.lib.format import read_array_header_1_0, read_array_header_2_0, read_magic

from tailwise.data.tables.preprocessing import import_skrub
from tailwise.files.archive import EPOCH, LIMITS, PREPROCESSING, json_values

KNOWN_TYPES = frozenset(
    {
        "numpy.dtype",
        "pandas.BooleanDtype",
        "pandas.CategoricalDtype",
        "pandas.DatetimeTZDtype",
        "pandas.StringDtype",
        *(f"pandas.{sign}Int{bits}Dtype" for sign in ("", "U") for bits in (8, 16, 32, 64)),
        *(f"pandas.Float{bits}Dtype" for bits in (32, 64)),
        "datetime.timedelta",
        "datetime.timezone",
        "zoneinfo.ZoneInfo",
        *(
            f"polars.datatypes.classes.{name}"
            for name in (
                *("Boolean", "Categorical", "Date", "Datetime", "Decimal", "Duration", "Enum", "Float32"),
                *("Float64", "Int8", "Int16", "Int32", "Int64", "Null", "String", "Time", "UInt8", "UInt16"),
                *("UInt32", "UInt64", "Utf8"),
            )
        ),
        "skrub._apply_to_cols.ApplyToCols",
        "skrub._apply_to_each_col.ApplyToEachCol",
        "skrub._check_input.CheckInputDataFrame",
        "skrub._clean_categories.CleanCategories",
        "skrub._clean_null_strings.CleanNullStrings",
        "skrub._dataframe._common.is_any_date",
        "skrub._dataframe._common.is_categorical",
        "skrub._dataframe._common.is_numeric",
        "skrub._datetime_encoder.DatetimeEncoder",
        "skrub._drop_if_too_many_nulls.DropIfTooManyNulls",
        "skrub._drop_uninformative.DropUninformative",
        "skrub._duration_to_float.DurationToFloat",
        "skrub._on_each_column.OnEachColumn",
        "skrub._string_encoder.StringEncoder",
        "skrub._table_vectorizer.PassThrough",
        "skrub._table_vectorizer.ShortReprDict",
        "skrub._table_vectorizer.TableVectorizer",
        "skrub._table_vectorizer._created_by_predicate",
        "skrub._to_categorical.ToCategorical",
        "skrub._to_datetime.ToDatetime",
        "skrub._to_float.ToFloat",
        "skrub._to_float32.ToFloat32",
        "skrub._to_str.ToStr",
        "skrub.selectors._base.All",
        "skrub.selectors._base.And",
        "skrub.selectors._base.Cols",
        "skrub.selectors._base.Filter",
        "skrub.selectors._base.Inv",
        "skrub.selectors._base.Or",
        "skrub.selectors._base.Sub",
        "skrub.selectors._selectors._cardinality_below",
    }
)
"""What a saved `TableVectorizer` may hold besides what skops trusts: scikit-learn's estimators and ufuncs.

Exact names of skrub 0.5 and later. skrub also has types that download models or call services.
"""
MAX_RATIO, MIN_UNPACKED = 40, 1 << 24
"""A skops file may unpack to this many times its size, or to this many bytes if that is more."""
MAX_MEMBERS = 100_000


def to_skops(value: Any) -> bytes:
    """Return an object as a skops file. It depends on the object only, not on time or memory addresses."""
    from skops.io import dumps

    source = zipfile.ZipFile(io.BytesIO(dumps(value)))
    schema = json.loads(source.read("schema.json"))
    numbers: dict[int, int] = {}
    files: dict[str, str] = {}
    _renumber(schema, numbers, files)
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", compression=zipfile.ZIP_DEFLATED) as archive:
        for old, new in files.items():
            _write(archive, new, source.read(old))
        _write(archive, "schema.json", json.dumps(schema).encode())
    return buffer.getvalue()


def _write(archive: zipfile.ZipFile, name: str, data: bytes) -> None:
    archive.writestr(zipfile.ZipInfo(name, EPOCH), data, compress_type=zipfile.ZIP_DEFLATED)


def _renumber(node: Any, numbers: dict[int, int], files: dict[str, str]) -> None:
    """Number objects and files in the order of their first mention, in place of memory addresses."""
    if isinstance(node, list):
        for item in node:
            _renumber(item, numbers, files)
    if not isinstance(node, dict):
        return
    if isinstance(node.get("__id__"), int):
        # Whether two equal constants are one object depends on Python, so each gets a number of its own.
        key = -len(numbers) if node.get("__loader__") == "JsonNode" else node["__id__"]
        node["__id__"] = numbers.setdefault(key, len(numbers) + 1)
    if "__loader__" in node and isinstance(node.get("file"), str):
        suffix = node["file"].rpartition(".")[2]
        node["file"] = files.setdefault(node["file"], f"{len(files) + 1}.{suffix}")
    for item in node.values():
        _renumber(item, numbers, files)


def unknown_types(data: bytes, is_known: Callable[[str], bool]) -> list[str]:
    """Return the types in a skops file that neither skops nor `is_known` trusts."""
    from skops.io import get_untrusted_types

    return [name for name in get_untrusted_types(data=data) if not is_known(name)]


def from_skops(data: bytes, member: str, is_known: Callable[[str], bool]) -> Any:
    """Return the object in a skops file. An unknown type or too large a file is an error.

    `member` is the part of a saved model that holds the file.
    """
    from skops.io import get_untrusted_types, loads

    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        _check_sizes(archive, len(data), member)
    named = get_untrusted_types(data=data)
    for name in named:
        if not is_known(name):
            raise ValueError(f"{member} names {name!r:.80}, which is refused")
    return loads(data, trusted=named)


def _check_sizes(archive: zipfile.ZipFile, packed: int, member: str) -> None:
    """Raise an error if a skops file would take much more memory than its own size."""
    infos = archive.infolist()
    size, allowed = sum(info.file_size for info in infos), max(MIN_UNPACKED, MAX_RATIO * packed)
    allowed = min(LIMITS[member], allowed)
    if size > allowed or len(infos) > MAX_MEMBERS:
        raise ValueError(f"{member} unpacks to {size} bytes, more than {allowed}")
    for info in infos:
        if info.filename == "schema.json":
            # A node of skops has about 130 bytes and 7 values; shorter ones only cost memory.
            if json_values(archive.read(info)) > max(10_000, info.file_size // 8):
                raise ValueError(f"{member} has a schema of too many values")
        elif info.filename.endswith(".npy"):
            _check_array(archive, info, member)
        else:
            raise ValueError(f"{member} holds {info.filename!r:.80}, which is refused")


def _check_array(archive: zipfile.ZipFile, info: zipfile.ZipInfo, member: str) -> None:
    """Raise an error if an array declares another size than it has."""
    with archive.open(info) as file:
        version = read_magic(file)
        read = read_array_header_1_0 if version == (1, 0) else read_array_header_2_0
        shape, _, dtype = read(file)
        if dtype.hasobject or math.prod(shape) * dtype.itemsize != info.file_size - file.tell():
            raise ValueError(f"{member} holds an array that does not have the size it declares")


# -- skrub's vectorizer ----------------------------------------------------------------------------


def vectorizer_to_bytes(vectorizer: Any) -> bytes:
    """Return a fitted `TableVectorizer` as a skops file; an unknown type in it is an error."""
    data = to_skops(vectorizer)
    for name in unknown_types(data, is_known_type):
        raise ValueError(f"the preprocessing holds {name:.80}, which cannot be saved without pickle")
    return data


def vectorizer_from_bytes(data: bytes) -> Any:
    """Return the `TableVectorizer` in a skops file; anything else is an error."""
    known = import_skrub().TableVectorizer
    vectorizer = from_skops(data, PREPROCESSING, is_known_type)
    if type(vectorizer) is not known:
        raise ValueError(f"{PREPROCESSING} holds a {type(vectorizer).__name__}, not a TableVectorizer")
    return vectorizer


def is_known_type(name: str) -> bool:
    """Whether a saved `TableVectorizer` may hold this type."""
    return name in KNOWN_TYPES
