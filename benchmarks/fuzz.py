"""Attack saved models and tables with thousands of mutated files, and count what happened.

``make fuzz`` runs ``python benchmarks/fuzz.py``: 5,000 mutated models and 500 malformed tables. Every file
must load, or be refused with a documented error: a `ValueError` or `OSError` of one line that names the file.
A file that runs code, takes more than `SECONDS` or more than `MEMORY` is a failure, and the exit code is 1.
The same seed gives the same files.
"""

from __future__ import annotations

import argparse
import base64
import hashlib
import io
import json
import os
import resource
import signal
import sys
import tempfile
import time
import zipfile
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from tailwise import TailRegressor
from tailwise.data.tables.columns import split_targets
from tailwise.data.tables.files import read_table
from tailwise.model import base as bases

SECONDS = 20
"""Longest time for one file."""
MEMORY = 1_500_000_000
"""Largest growth of the process, in bytes."""
MANIFEST = "manifest.json"
EXTREMES: list[Any] = [
    None, True, -1, 0, 1, 2.5, 10**6, 10**9, 10**20, 1e308, "", "x", "os.system", "x" * 10_000, [], {}, [[]],
    [0] * 50_000, {"$float": "nan"}, {"$float": "inf"}, {"$tuple": [1, 2]}, {"a": {"a": {}}},
]  # fmt: skip
TYPES = [
    "os.system", "builtins.eval", "builtins.exec", "subprocess.Popen", "pickle.loads", "numpy.load",
    "skrub._llm_encoder.LLMEncoder", "sklearn.datasets._openml.fetch_openml", "tailwise.TailRegressor",
    "pandas.io.pickle.read_pickle", "sklearn.tree._tree.Tree", "zoneinfo.ZoneInfo",
]  # fmt: skip


class Executed(BaseException):
    """A file made the process run something. Nothing may catch this."""


class Hung(BaseException):
    """A file took too long."""


# -- mutations of models ---------------------------------------------------------------------------


def members_of(path: Path) -> dict[str, bytes]:
    with zipfile.ZipFile(path) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def packed(members: dict[str, bytes], compression: int = zipfile.ZIP_STORED, sums: bool = True) -> bytes:
    """A zip of members whose checksums match, as a forger would make it."""
    if sums and MANIFEST in members:
        try:
            manifest = json.loads(members[MANIFEST])
            manifest["members"] = {
                name: hashlib.sha256(data).hexdigest() for name, data in members.items() if name != MANIFEST
            }
            members = {**members, MANIFEST: json.dumps(manifest).encode()}
        except (ValueError, TypeError):
            pass
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", compression) as archive:
        for name, data in members.items():
            archive.writestr(name, data)
    return buffer.getvalue()


def flipped(data: bytes, rng: np.random.Generator) -> bytes:
    """Bytes with some overwritten, inserted, cut out or cut off."""
    for _ in range(int(rng.integers(1, 5))):
        at = int(rng.integers(len(data) + 1))
        noise = rng.bytes(int(rng.integers(1, 20)))
        kind = int(rng.integers(4))
        if kind == 0:
            data = data[:at] + noise + data[at + len(noise) :]
        elif kind == 1:
            data = data[:at] + noise + data[at:]
        elif kind == 2:
            data = data[:at] + data[at + len(noise) :]
        elif rng.random() < 0.2:
            data = data[:at]
    return data


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    if path:
        yield path
    inside = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in inside:
        if not (isinstance(key, int) and key > 2):
            yield from places(item, (*path, key))


def spoilt_json(data: bytes, rng: np.random.Generator) -> bytes:
    """JSON with one to three values changed, removed, doubled or renamed."""
    content = json.loads(data)
    for _ in range(int(rng.integers(1, 4))):
        found = list(places(content))
        if not found:
            break
        *way, last = found[int(rng.integers(len(found)))]
        parent = content
        for key in way:
            parent = parent[key]
        kind = int(rng.integers(5))
        if kind == 0:
            del parent[last]
        elif kind == 1 and isinstance(parent[last], (int, float)) and not isinstance(parent[last], bool):
            parent[last] = parent[last] * float(rng.choice([-1, 0, 10, 1e6, 1e-6]))
        elif kind == 2 and isinstance(parent[last], (list, str)):
            parent[last] = parent[last] * int(rng.choice([0, 2, 100]))
        elif kind == 3 and isinstance(parent, dict):
            parent[f"{last}x"] = parent[last]
        else:
            parent[last] = EXTREMES[int(rng.integers(len(EXTREMES)))]
    return json.dumps(content).encode()


def spoilt_skops(data: bytes, rng: np.random.Generator) -> bytes:
    """A skops file whose schema names another type, has a wrong value, or whose arrays are bombs or noise."""
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    kind = int(rng.integers(5))
    arrays = [name for name in members if name.endswith(".npy")]
    if kind == 0:
        module, _, name = TYPES[int(rng.integers(len(TYPES)))].rpartition(".")
        schema = json.loads(members["schema.json"])
        nodes = [p[:-1] for p in places(schema) if p[-1] == "__class__"]
        node = schema
        for key in nodes[int(rng.integers(len(nodes)))]:
            node = node[key]
        node["__class__"], node["__module__"] = name, module
        if rng.random() < 0.5:
            node["__loader__"] = str(rng.choice(["FunctionNode", "TypeNode", "ObjectNode", "MethodNode"]))
        members["schema.json"] = json.dumps(schema).encode()
    elif kind == 1:
        members["schema.json"] = spoilt_json(members["schema.json"], rng)
    elif kind == 2 and arrays:
        name = arrays[int(rng.integers(len(arrays)))]
        members[name] = flipped(members[name], rng)
    elif kind == 3:
        members[str(rng.choice(["bomb.npy", "schema.json", "../out"]))] = bytes(
            int(rng.choice([10**6, 10**8]))
        )
    else:
        members["schema.json"] = flipped(members["schema.json"], rng)
    return packed(members, zipfile.ZIP_DEFLATED, sums=False)


def spoilt_base(data: bytes, rng: np.random.Generator) -> bytes:
    """Base regressors with a wrong value, or with a spoilt skops file inside."""
    content = json.loads(data)
    models = content[0]["models"]
    if content[0]["kind"] == "scikit-learn" and rng.random() < 0.7:
        place = int(rng.integers(len(models)))
        models[place] = base64.b64encode(spoilt_skops(base64.b64decode(models[place]), rng)).decode()
        return json.dumps(content).encode()
    if isinstance(models[0], str) and rng.random() < 0.5:
        models[0] = flipped(models[0].encode(), rng).decode(errors="replace")
        return json.dumps(content).encode()
    return spoilt_json(data, rng)


def mutated(data: bytes, members: dict[str, bytes], rng: np.random.Generator) -> bytes:
    """One of many ways to damage or forge a saved model."""
    kind = rng.random()
    if kind < 0.25:
        return flipped(data, rng)
    if kind < 0.55:
        return packed({**members, MANIFEST: spoilt_json(members[MANIFEST], rng)})
    if kind < 0.65:
        name = list(members)[int(rng.integers(len(members)))]
        return packed({**members, name: flipped(members[name], rng)})
    if kind < 0.7:
        strange = str(
            rng.choice(["../evil.py", "/etc/passwd", "base.json", "a" * 300, "weights.safetensors/.."])
        )
        compression = zipfile.ZIP_DEFLATED if rng.random() < 0.5 else zipfile.ZIP_STORED
        return packed({**members, strange: bytes(int(rng.choice([0, 10, 10**7])))}, compression)
    if "preprocessing.skops" in members:
        return packed({**members, "preprocessing.skops": spoilt_skops(members["preprocessing.skops"], rng)})
    if "base.json" in members:
        return packed({**members, "base.json": spoilt_base(members["base.json"], rng)})
    size = int(rng.choice([0, 2, 10**6, 2**31, 2**62]))
    return packed(
        {**members, "weights.safetensors": size.to_bytes(8, "little") + members["weights.safetensors"][8:]}
    )


# -- malformed tables ------------------------------------------------------------------------------


def malformed(number: int, rng: np.random.Generator) -> bytes:
    """A table that is broken in one to three ways."""
    n = int(rng.integers(1, 40))
    table = pd.DataFrame({"x": rng.normal(size=n), "kind": rng.choice(["red", "b,lue", 'q"q', "ü"], n)})
    table["price"] = np.exp(table["x"])
    if number % 5 == 0:
        buffer = io.BytesIO()
        hours, days = pd.to_timedelta(range(n), "h"), pd.period_range("2020", periods=n)
        kinds: list[Any] = [hours, [b"\xff"] * n, days, ["9" * 400] * n]
        table["price" if number % 20 == 0 else "odd"] = kinds[number // 5 % 4]
        table.to_parquet(buffer)
        return flipped(buffer.getvalue(), rng) if rng.random() < 0.7 else buffer.getvalue()
    encodings = ["utf-8", "utf-8", "utf-16", "utf-32", "utf-7", "cp1252", "utf-8-sig"]
    data = table.to_csv(index=False).encode(str(rng.choice(encodings)))
    odd = [
        b"\x00",
        b"\x1b[2J",
        b"\xe2\x80\xa8",
        b"=cmd()",
        b"9" * 400,
        b"# note\n",
        b'"',
        b",",
        b"\n\n",
        b"\r",
    ]
    at = int(rng.integers(len(data) + 1))
    data = data[:at] + odd[int(rng.integers(len(odd)))] * int(rng.choice([1, 1, 50])) + data[at:]
    return flipped(data, rng) if rng.random() < 0.3 else data


# -- the run ---------------------------------------------------------------------------------------


def forbid_execution() -> None:
    """Make every way of running code or reaching the network raise `Executed` from here on."""

    def hook(event: str, args: tuple[Any, ...]) -> None:
        if event in (
            "os.system",
            "subprocess.Popen",
            "os.exec",
            "os.posix_spawn",
            "socket.connect",
            "os.fork",
        ):
            raise Executed(f"{event} {args!r:.80}")
        if event == "pickle.find_class":
            raise Executed(f"{event} {args!r:.80}")

    sys.addaudithook(hook)


def tried(attempt: Callable[[], object], where: str) -> str:
    """What came of one file: "loads", "refused", or a failure in words."""

    def stop(*_: object) -> None:
        raise Hung

    signal.signal(signal.SIGALRM, stop)
    signal.alarm(SECONDS)
    try:
        attempt()
    except (ValueError, OSError) as error:
        text = str(error)
        return "refused" if "\n" not in text and where in text else f"unclear message: {text[:200]!r}"
    except (Hung, Executed, Exception) as error:
        return f"{type(error).__name__}: {str(error)[:200]}"
    finally:
        signal.alarm(0)
    return "loads"


def grown(since: int) -> int:
    """Bytes by which the largest size of the process exceeds `since`."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 - since


def seeds_of_models(folder: Path) -> list[Path]:
    """Small models of every kind of member: numbers, text, CatBoost and scikit-learn as a base."""
    from sklearn.ensemble import HistGradientBoostingRegressor

    rng = np.random.default_rng(0)
    x = pd.DataFrame(rng.normal(size=(80, 3)), columns=list("abc"))
    y = np.exp(x["a"]).to_numpy()
    text = x.assign(kind=rng.choice(["red", "blue"], 80), words=[f"item {i} of {i % 7}" for i in range(80)])
    bases.TREES = 3
    quick: dict[str, Any] = {"epochs": 1, "random_state": 0}
    trees = HistGradientBoostingRegressor(max_iter=3)
    models = [
        TailRegressor(base=None, folds=1, **quick).fit(x, y),
        TailRegressor(base=None, folds=1, **quick).fit(text, y),
        TailRegressor(base="catboost", folds=2, **quick).fit(x, y),
        TailRegressor(base=trees, folds=1, **quick).fit(x, y),
    ]
    return [model.save(folder / f"seed-{k}") for k, model in enumerate(models)]


def attack(models: int, tables: int, seed: int, show: Callable[[str], None], first: int = 0) -> Counter[str]:
    """Try mutated models and malformed tables, from number `first` on; count what came of them."""
    counts: Counter[str] = Counter()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        sources = seeds_of_models(folder)
        contents = [(path.read_bytes(), members_of(path)) for path in sources]
        for path in sources:  # everything is imported before execution is forbidden and memory is counted
            TailRegressor.load(path)
        forbid_execution()
        began, before = time.perf_counter(), grown(0)
        for number in range(first, models + tables):
            rng, is_model = np.random.default_rng([seed, number]), number < models
            path = folder / ("m.tailwise" if is_model else f"t{number}.csv")
            content = mutated(*contents[number % 4], rng) if is_model else malformed(number - models, rng)
            path.write_bytes(content)

            def attempt(path: Path = path, is_model: bool = is_model) -> object:
                if is_model:
                    return TailRegressor.load(path)
                return split_targets(read_table(path), ["price"], str(path))

            found = tried(attempt, path.name)
            kind = "model" if is_model else "table"
            if found not in ("loads", "refused"):
                show(f"{kind} {number}: {found}")
                found = "failed"
            if grown(before) > MEMORY:
                show(f"{kind} {number}: {grown(before) / 1e9:.2f} GB of memory")
                before, found = grown(0), "failed"
            counts[f"{kind}s {found}"] += 1
            path.unlink()
            if number % 500 == 499:
                show(f"{number + 1} files in {time.perf_counter() - began:.0f} s: {dict(counts)}")
    return counts


def main() -> None:
    """Run the attack and print the counts."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--models", type=int, default=5000)
    parser.add_argument("--tables", type=int, default=500)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--first", type=int, default=0, help="number of the first file, to repeat a failure")
    given = parser.parse_args()
    show = lambda text: print(text, flush=True)  # noqa: E731
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    counts = attack(given.models, given.tables, given.seed, show, given.first)
    show(f"{given.models} models and {given.tables} tables, seed {given.seed}: {dict(counts)}")
    sys.exit(1 if any(key.endswith("failed") for key in counts) else 0)


if __name__ == "__main__":
    main()
