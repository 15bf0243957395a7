"""Objects of scikit-learn and skrub as bytes, by skops instead of pickle."""

from __future__ import annotations

import importlib
import io
import json
import re
import zipfile
from collections.abc import Callable
from typing import Any

from tailwise.estimator.archive import EPOCH, LIMITS, PREPROCESSING

_PLAIN_TYPES = frozenset(
    {
        "numpy.dtype",
        "pandas.BooleanDtype",
        "pandas.CategoricalDtype",
        "pandas.DatetimeTZDtype",
        "pandas.StringDtype",
        "datetime.timedelta",
        "datetime.timezone",
        "zoneinfo.ZoneInfo",
    }
)
_PLAIN_PATTERN = re.compile(r"pandas\.U?Int(8|16|32|64)Dtype|pandas\.Float(32|64)Dtype")
_POLARS_PATTERN = re.compile(r"polars\.datatypes\.classes\.[A-Z]\w*")
_SKRUB_PATTERN = re.compile(
    r"skrub\._[a-z_]+\.[A-Z]\w*"  # transformers
    r"|skrub\.selectors\._[a-z_]+\.\w+"  # which columns a transformer is for, and how to tell
    r"|skrub\._dataframe\._common\.is_\w+"
    r"|skrub\._table_vectorizer\._created_by_predicate"
)


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
        size = sum(info.file_size for info in archive.infolist())
    if size > LIMITS[member]:
        raise ValueError(f"{member} unpacks to {size} bytes, more than {LIMITS[member]}")
    for name in unknown_types(data, is_known):
        raise ValueError(f"{member} names {name!r:.80}, which is refused")
    return loads(data, trusted=get_untrusted_types(data=data))


def is_own(name: str, package: str) -> bool:
    """Whether a package defines the object of this name itself, and did not import it from elsewhere."""
    module, _, attribute = name.rpartition(".")
    try:
        found = getattr(importlib.import_module(module), attribute, None)
    except ImportError:  # the package is not installed, or the module is no part of it
        return False
    return str(getattr(found, "__module__", "")).partition(".")[0] == package


# -- skrub's vectorizer ----------------------------------------------------------------------------


def vectorizer_to_bytes(vectorizer: Any) -> bytes:
    """Return a fitted `TableVectorizer` as a skops file; an unknown type in it is an error."""
    data = to_skops(vectorizer)
    for name in unknown_types(data, is_known_type):
        raise ValueError(f"the preprocessing holds {name:.80}, which cannot be saved without pickle")
    return data


def vectorizer_from_bytes(data: bytes) -> Any:
    """Return the `TableVectorizer` in a skops file; anything else is an error."""
    from skrub import TableVectorizer

    vectorizer = from_skops(data, PREPROCESSING, is_known_type)
    if type(vectorizer) is not TableVectorizer:
        raise ValueError(f"{PREPROCESSING} holds a {type(vectorizer).__name__}, not a TableVectorizer")
    return vectorizer


def is_known_type(name: str) -> bool:
    """Whether a saved `TableVectorizer` may hold this type: one of skrub, pandas or polars themselves."""
    if name in _PLAIN_TYPES or _PLAIN_PATTERN.fullmatch(name):
        return True
    if _SKRUB_PATTERN.fullmatch(name):
        return is_own(name, "skrub")
    return bool(_POLARS_PATTERN.fullmatch(name)) and is_own(name, "polars")
