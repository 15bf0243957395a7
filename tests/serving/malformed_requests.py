"""Requests that are wrong in every way that a client may think of, from a seed."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from typing import Any, NamedTuple

CELLS: tuple[Any, ...] = (
    None, True, -1, 3.5, 1e300, 5e-324, 10**400, "", "nan", "N/A", "\x00", "\ud800", "x" * 5000, "👍" * 50,
    "12", "now", "2024-01-31", "2024-02-31", "9999-12-31T23:59:59Z", "0001-01-01", "99999999-01-01",
    "2024-03-31T02:30", "2024-10-27T02:30", [[1]], {"a": {"b": 1}}, [None] * 50,
)  # fmt: skip
OPTIONS = ("coverage", "quantiles", "emphasis", "rows", "row", "", "__proto__")
LEVELS = ([0.5], [0.5, 0.5], [0], [k / 200 for k in range(1, 150)])
VALUES: tuple[Any, ...] = (*CELLS, 0.5, 0.9, 0.999, 1, *LEVELS)
HEADERS: tuple[dict[str, str], ...] = (
    {"content-type": "text/plain"},
    {"content-type": "application/json; charset=utf-16"},
    {"content-type": ";;;"},
    {"content-encoding": "gzip"},
    {"accept": "image/png"},
    {"x-long": "y" * 5000},
)
PATHS = ("/predict", "/predict/", "/health", "/nothing", "/%00", "/schema", "/metrics?a=%ff")


class Sent(NamedTuple):
    """An HTTP request."""

    method: str
    path: str
    body: bytes
    headers: dict[str, str]


def malformed(example: dict[str, Any], count: int, seed: int) -> Iterator[Sent]:
    """Yield requests that are mostly wrong; `example` is a good row."""
    rng = random.Random(seed)
    for _ in range(count):
        headers = {"content-type": "application/json"}
        method, path = "POST", "/predict"
        request: Any = {"rows": [_row(rng, example) for _ in range(rng.choice((1, 1, 1, 2, 5)))]}
        for _ in range(rng.choice((0, 0, 1, 2))):
            request[rng.choice(OPTIONS)] = rng.choice(VALUES)
        kind = rng.random()
        if kind < 0.05:
            request = rng.choice(VALUES)
        body = json.dumps(request).encode(errors="surrogatepass")
        if kind > 0.7:
            body = _broken(rng, body)
        if kind > 0.9:
            headers |= rng.choice(HEADERS)
        if kind > 0.96:
            method = rng.choice(("GET", "PUT", "DELETE", "PATCH", "OPTIONS", "POST"))
            path = rng.choice(PATHS)
        yield Sent(method, path, body, headers)


def _row(rng: random.Random, example: dict[str, Any]) -> Any:
    if rng.random() < 0.05:
        return rng.choice(CELLS)
    row = dict(example)
    for _ in range(rng.choice((0, 1, 1, 2, 4))):
        name = rng.choice([*example, "unknown", ""])
        if rng.random() < 0.2:
            row.pop(name, None)
        else:
            row[name] = rng.choice(CELLS)
    return row


def _broken(rng: random.Random, body: bytes) -> bytes:
    """Return a body that was cut, changed, repeated or replaced."""
    place = rng.randrange(len(body) + 1)
    odd = rng.choice((b"NaN", b"Infinity", b"1e999", b"\xff", b"\\ud800", b'"', b"}", b"["))
    bodies = (
        body[:place],
        body[:place] + bytes([rng.randrange(256)]) + body[place + 1 :],
        body[:place] + odd + body[place:],
        body + body,
        b"",
        b"[" * rng.choice((10, 5000, 200_000)),
        b'{"rows":' * 3000,
        rng.randbytes(200),
        b"9" * 10_000,
        body.decode(errors="ignore").encode("utf-16"),
        b"\xef\xbb\xbf" + body,
    )
    return rng.choice(bodies)
