"""The encoding of a text file: what the user named, what a mark or UTF-8 says, or western text.

Text that is probably of another encoding is an error that asks for its name.
"""

from __future__ import annotations

import codecs
import re

_BOMS = (
    (codecs.BOM_UTF8, "utf-8-sig"),
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)


class TableError(ValueError):
    """A table that cannot be read or used; the message says where and what to do."""


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
    """Return a file's text, and its encoding where that is a guess: Windows-1252 or Latin-1."""
    encoding = next((e for bom, e in _BOMS if content.startswith(bom)), None)
    if encoding is None and b"\x00" in content[:4096]:
        encoding = _wide_encoding(content[:4096])
        if encoding is None:
            raise TableError(f"{name} is a binary file, not a table: give a CSV or Parquet file")
    for candidate in [encoding] if encoding else ["utf-8", "cp1252", "latin-1"]:
        try:
            text, used = content.decode(candidate), candidate
            break
        except UnicodeDecodeError as error:
            if encoding is not None:
                raise TableError(
                    f"{name} is damaged: byte {error.start} is not {encoding}; save it again as UTF-8"
                ) from None
    western = used in ("cp1252", "latin-1")
    if western and not _is_western(content[:200_000]):
        raise TableError(
            f"{name} is neither UTF-8 nor western text: save it as UTF-8, or name its encoding, such as "
            "shift_jis, gb18030, big5 or koi8-r"
        )
    sample = text[:20_000]
    odd = sum(1 for c in sample if (c < " " and c not in "\t\r\n\f") or "\x7f" <= c < "\xa0" or c == "\ufffd")
    if odd > 0.02 * len(sample):
        raise TableError(f"{name} is a binary file, not a table: give a CSV or Parquet file")
    return text, used if western else None


def _is_western(sample: bytes) -> bool:
    """Whether bytes that are not UTF-8 look like a western language in Windows-1252 or Latin-1.

    There, accented letters are single and few among plain ones. Chinese, Japanese and Korean encodings use
    pairs of bytes, and Cyrillic or Greek ones whole words of bytes beyond ASCII.
    """
    sample = sample.replace(b"\xdf", b"s")  # in German, a sharp s follows an umlaut
    high = re.findall(rb"[\x80-\xff]+", sample)
    letters = len(re.findall(rb"[A-Za-z]", sample))
    count = sum(map(len, high))
    in_runs = sum(len(run) for run in high if len(run) > 1)
    controls = len(re.findall(rb"[\x81-\x84\x86-\x90\x98-\x9f]", sample))  # leads of Shift-JIS
    return in_runs <= 0.4 * count and controls <= 0.3 * count and count <= max(letters, 3)


def _wide_encoding(sample: bytes) -> str | None:
    """The byte order of UTF-16 without a mark, where every other byte of plain text is 0; else None."""
    half = len(sample) // 2
    even, odd = sample[0 : 2 * half : 2].count(0), sample[1 : 2 * half : 2].count(0)
    if odd > 0.4 * half and even < 0.1 * half:
        return "utf-16-le"
    return "utf-16-be" if even > 0.4 * half and odd < 0.1 * half else None
