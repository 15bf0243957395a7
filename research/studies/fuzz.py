"""Attack saved models and tables with thousands of files, and count what happened.

``make fuzz`` runs this script: 5,000 mutated models, the attacks of `attacks` on fields and arrays, and
500 malformed tables. Each file is read, and rows predicted, in a process of its own. It must load, or be
refused with an error of one line that names it; a value of a wrong kind must be refused. It is a failure if
the process ends, runs code, opens another file, or takes more than `SECONDS` of processor time or `MEMORY`:
the exit code is then 1. The same seed gives the same files.
"""

from __future__ import annotations

import argparse
import faulthandler
import gc
import hashlib
import io
import json
import os
import re
import resource
import signal
import sys
import tempfile
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from safetensors.numpy import load as read_arrays
from safetensors.numpy import save as arrays_to_bytes

from tailwise import TailRegressor
from tailwise.files.archive import VERSION
from tailwise.model import base as bases
from tailwise.tables.columns import split_targets
from tailwise.tables.read import read_table

SECONDS, MEMORY = 2, 1_000_000_000
"""Most processor time, and most growth of the process in bytes, for one file."""
WAIT = 30
"""Seconds after which a process that still runs is ended."""
EITHER = ("loads", "refused")
Arrays = dict[str, np.ndarray]
WRONG: list[Any] = [10**400, float("nan"), "__class__", {"class": "os.system"}, [[]]]
"""Values that a field takes only if it has one of the same kind: number, text, mapping, list."""
EXTREMES: list[Any] = [
    None, True, -1, 0, 1, 2.5, 10**6, 10**9, 10**20, 1e308, "", "x" * 10_000, [], {}, [0] * 50_000,
    float("inf"), {"a": {"a": {}}}, *WRONG,
]  # fmt: skip


# -- models ----------------------------------------------------------------------------------------


class Source(NamedTuple):
    """A sound model: its file, and rows that it predicts."""

    data: bytes
    rows: pd.DataFrame

    @property
    def parts(self) -> tuple[dict[str, Any], Arrays]:
        """The model as JSON and its arrays, to be changed."""
        text, _, weights = self.data.split(b"\n", 3)[3].partition(b"\n")
        return json.loads(text), dict(read_arrays(weights))


NAMES = ("plain", "text", "catboost", "lightgbm", "linear")
"""Sound models; together they have every kind of part that a file can hold."""


def sound(name: str, folder: Path) -> Source:
    """Fit a small model."""
    from sklearn.impute import SimpleImputer
    from sklearn.linear_model import Ridge
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    rng = np.random.default_rng(0)
    x = pd.DataFrame(rng.normal(size=(80, 3)), columns=list("abc"))
    y = np.exp(x["a"]).to_numpy()
    options: dict[str, Any] = {"base": name, "folds": 2}
    if name == "plain":
        options = {"conformal_by": "c", "bounds": (0, None)}
    elif name == "text":
        words = [f"item {i} of {i % 7}" for i in range(80)]
        dates = pd.date_range("2024-01-01", periods=80, tz="Europe/Paris")
        x = x.assign(kind=rng.choice(["red", "blue"], 80), words=words, day=dates, wait=dates - dates[0])
        options = {}
    elif name == "linear":
        base, y = make_pipeline(SimpleImputer(), StandardScaler(), Ridge()), np.c_[y, -y]
        options = {"base": base, "method": "ensemble", "method_options": {"members": 2}}
    trees, bases.TREES = bases.TREES, 3
    model = TailRegressor(**{"base": None, "folds": 1, "epochs": 1, "random_state": 0, **options}).fit(x, y)
    bases.TREES = trees
    return Source(model.save(folder / name, overwrite=True).read_bytes(), x)


def forged(model: Any, weights: bytes) -> bytes:
    """A file with a checksum that matches, as a forger would make it."""
    content = json.dumps(model).encode() + b"\n" + weights
    checksum = hashlib.sha256(content).hexdigest()
    return f"tailwise model {VERSION} 0\n{checksum}\n-\n".encode() + content


# -- mutations -------------------------------------------------------------------------------------


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
    """Yield the paths of all values inside JSON; of a list, those of its first three items."""
    if path:
        yield path
    inside = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in inside:
        if not (isinstance(key, int) and key > 2):
            yield from places(item, (*path, key))


def parent_of(content: Any, path: Sequence[Any]) -> tuple[Any, Any]:
    """Return the mapping or list that has a place, and its key there."""
    for key in path[:-1]:
        content = content[key]
    return content, path[-1]


def spoil_json(content: Any, rng: np.random.Generator) -> None:
    """Change, remove, double or rename one to three values of JSON."""
    for _ in range(int(rng.integers(1, 4))):
        found = list(places(content))
        if not found:
            break
        parent, last = parent_of(content, found[int(rng.integers(len(found)))])
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


def mutated(source: Source, rng: np.random.Generator) -> bytes:
    """One of many ways to damage or forge a saved model."""
    model, arrays = source.parts
    kind, weights = rng.random(), arrays_to_bytes(arrays)
    if kind < 0.15:
        return flipped(source.data, rng)
    if kind < 0.75:
        spoil_json(model, rng)
        return forged(model, weights)
    if kind < 0.9:
        return forged(model, flipped(weights, rng))
    size = int(rng.choice([0, 2, 10**6, 2**31, 2**62]))
    return forged(model, size.to_bytes(8, "little") + weights[8:])


# -- targeted attacks ------------------------------------------------------------------------------


def _with_first(value: float) -> Callable[[np.ndarray], np.ndarray]:
    def spoil(array: np.ndarray) -> np.ndarray:
        changed = array.copy()
        changed.reshape(-1)[:1] = value
        return changed

    return spoil


SPOILS: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "huge": lambda array: _with_first(np.iinfo(array.dtype).max if array.dtype.kind in "iu" else 1e9)(array),
    "negative": lambda array: _with_first(0 if array.dtype.kind in "ub" else -5)(array),
    "nan": lambda array: _with_first(np.nan)(array) if array.dtype.kind == "f" else array.astype(np.float32),
    "zeros": np.zeros_like,
    "short": lambda array: array[:-1],
    "long": lambda array: np.concatenate([array, array]) if array.ndim else array.reshape(1),
    "empty": lambda array: array.reshape(-1)[:0],
    "reversed": lambda array: array[::-1].copy() if array.ndim else array,
    "wrapped": lambda array: np.concatenate([np.full(4, 2**62), array.reshape(-1)]),  # 2**64 is 0
    "another shape": lambda array: array[None],
    "another type": lambda array: array.astype(np.int32 if array.dtype.kind == "f" else np.float32),
}
"""Ways to spoil an array."""
TEXT, DAY, MODEL = ("table", "encoders", 4), ("table", "encoders", 5), ("bases", 0, "models", 0)
OTHERS = "RandomForestRegressor", "Pipeline", "KNeighborsRegressor", "SVR", "builtins.eval"
ATTACKS: dict[str, dict[tuple[Any, ...], list[Any]]] = {
    "plain": {
        ("params", "device"): ["xyz", "cuda:99"],
        ("params", "method"): ["__init__", "x" * 1000, None],
        ("parts", "members"): [999, 10**9, 0],
        ("parts", "latent.dim"): [10**9],
        ("parts", "perturbation.samples"): [10**9],
        ("backbones", 0, "name"): ["resnet50", "realmlp", None],
        ("backbones", 0, "edges"): [[], [[10**9]] * 200_000],
        ("params", "feature_dim"): [10**9, 1, 0],
        ("picture_size",): [[10**6, 10**6]],
        ("target_names",): [["a", "b"]],
    },
    "text": {
        (*TEXT, "input"): ["filename"],
        (*TEXT, "token_pattern"): ["(a+)+$"],
        (*TEXT, "tokenizer"): ["os.system"],
        (*TEXT, "n_jobs"): [200],
        TEXT: [None, {"class": "HashingVectorizer", "input": "filename"}],
        ("table", "encoders", 3, "values"): [["b", "a"], [5, "a"], ["a"]],
        (*DAY, "zone"): ["dateutil//etc/passwd", "/etc/passwd", "../../etc/passwd", "nowhere"],
        (*DAY, "shape"): ["%d" * 1000],
        (*DAY, "hours"): ["__class__", 1],
    },
    "catboost": {(*MODEL, "missing"): [["x"] * 3, ["AsIs"]], ("bases", 0, "scale"): [0, -1]},
    "lightgbm": {(*MODEL, "features"): [10**9, 2]},
    "linear": {(*MODEL, "steps"): [[["fit", [3]]], 5], MODEL: [{"class": name} for name in OTHERS]},
}
"""Values of the right kind that must be refused all the same, by model and field."""


def kind_of(value: Any) -> str:
    """Name the kind of a value in JSON."""
    return "number" if isinstance(value, (int, float)) else type(value).__name__


def spoil(model: dict[str, Any], arrays: Arrays, name: str, how: str) -> None:
    """Spoil an array; the model says its new shape."""
    with np.errstate(invalid="ignore", over="ignore"):
        arrays[name] = np.ascontiguousarray(SPOILS[how](arrays[name]))
    if name.startswith("model."):
        path = [int(key) if key.isdigit() else key for key in name.split(".")[1:]]
        parent, last = parent_of(model, path)
        parent[last] = list(arrays[name].shape)


def attacks(name: str, source: Source) -> Iterator[tuple[str, bytes, tuple[str, ...]]]:
    """Yield the words for each attack on a model, the file, and what may come of it."""
    whole, every = source.parts
    planned = [(path, value, True) for path, values in ATTACKS[name].items() for value in values]
    for path in places(whole) if name == "plain" else ():
        parent, last = parent_of(whole, path)
        planned += [(path, value, kind_of(value) != kind_of(parent[last])) for value in WRONG]
    for path, value, refused in planned:
        model, arrays = source.parts
        parent, last = parent_of(model, path)
        parent[last] = value
        words = f"{'.'.join(map(str, path))} = {str(value)[:40]}"
        yield words, forged(model, arrays_to_bytes(arrays)), ("refused",) if refused else EITHER
    for array in every:
        for how in SPOILS:
            model, arrays = source.parts
            spoil(model, arrays, array, how)
            yield f"{array} {how}", forged(model, arrays_to_bytes(arrays)), EITHER


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
    odd = [b"\x00", b"\x1b[2J", b"\xe2\x80\xa8", b"=cmd()", b"9" * 400, b"# note\n", b'"', b",", b"\r"]
    at = int(rng.integers(len(data) + 1))
    data = data[:at] + odd[int(rng.integers(len(odd)))] * int(rng.choice([1, 1, 50])) + data[at:]
    return flipped(data, rng) if rng.random() < 0.3 else data


# -- the run ---------------------------------------------------------------------------------------


class Forbidden(BaseException):
    """A file made the process run something or open another file. Nothing may catch this."""


class Hung(BaseException):
    """A file took too long."""


FORBIDDEN = (
    "os.system", "os.exec", "os.fork", "os.posix_spawn", "subprocess.Popen", "socket.connect",
    "pickle.find_class",
)  # fmt: skip
READABLE = (
    *filter(None, sys.path), sys.prefix, sys.base_prefix,
    "/usr/share/zoneinfo", "/usr/lib", "/proc/self", "/sys", "/dev/null",
)  # fmt: skip
"""Where Python and its packages are, and what they read by themselves."""
TEMPORARY = re.escape(tempfile.gettempdir()) + r"/tmp\w{8}(/model\.json)?"
"""The file from which CatBoost reads a model."""


def guard(allowed: Path) -> None:
    """Make running code, and opening a file but the one `allowed`, raise `Forbidden` from here on."""
    here = (str(allowed), str(Path(__file__).parents[1]), *READABLE)

    def hook(event: str, args: tuple[Any, ...]) -> None:
        if event in FORBIDDEN:
            raise Forbidden(f"{event} {args!r:.80}")
        if event == "open" and isinstance(args[0], (str, bytes)):
            name = os.path.realpath(os.fsdecode(args[0]))
            if not name.startswith(here) and re.fullmatch(TEMPORARY, name) is None:
                raise Forbidden(f"opened {name:.80}")

    sys.addaudithook(hook)


def tried(attempt: Callable[[], object], where: str) -> str:
    """What came of one file: "loads", "refused", or a failure in words."""
    try:
        attempt()
    except (ValueError, OSError) as error:
        text = str(error)
        clear = "\n" not in text and where in text and "MemoryError" not in text
        return "refused" if clear else f"unclear message: {text[:200]!r}"
    except (Hung, Forbidden, Exception) as error:
        return f"{type(error).__name__}: {str(error)[:200]}"
    return "loads"


def alone(attempt: Callable[[], object], path: Path) -> tuple[str, float, int]:
    """Run an attempt in a process of its own; return what came of it, processor seconds, and bytes."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        faulthandler.disable()
        pages = int(Path("/proc/self/statm").read_text().split()[0])
        resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + 4 * MEMORY,) * 2)
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        before = resource.getrusage(resource.RUSAGE_SELF)
        guard(path)
        found = tried(attempt, path.name)
        after = resource.getrusage(resource.RUSAGE_SELF)
        seconds = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        os.write(write, json.dumps([found, seconds, 1024 * (after.ru_maxrss - before.ru_maxrss)]).encode())
        os._exit(0)
    os.close(write)
    signal.signal(signal.SIGALRM, lambda *_: os.kill(child, signal.SIGKILL))
    signal.alarm(WAIT)
    answer = b"".join(iter(lambda: os.read(read, 65536), b""))
    _, status = os.waitpid(child, 0)
    signal.alarm(0)
    os.close(read)
    if not answer:
        return f"the process ended with status {status}", 0.0, 0
    found, seconds, size = json.loads(answer)
    if seconds > SECONDS:
        found = f"took {seconds:.1f} s"
    elif size > MEMORY:
        found = f"took {size / 1e9:.1f} GB"
    return found, seconds, size


def try_model(path: Path, rows: pd.DataFrame) -> None:
    """Load a model and predict rows with it. An error of the predictions names the file, as one at load."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = TailRegressor.load(path)
        try:
            model.predict_interval(rows)
            model.predict(rows)
        except ValueError as error:
            raise ValueError(f"{path}: {error}") from error


def main() -> None:
    """Run the attack and print the counts."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--models", type=int, default=5000)
    parser.add_argument("--tables", type=int, default=500)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    if os.environ.get("OMP_NUM_THREADS") != "1":  # a process with threads cannot be divided
        os.execve(sys.executable, sys.orig_argv, {**os.environ, "OMP_NUM_THREADS": "1"})
    counts: Counter[str] = Counter()
    most = [0.0, 0.0]

    def count(kind: str, name: str, attempt: Callable[[], object], file: Path, allowed: Any = EITHER) -> None:
        found, *cost = alone(attempt, file)
        most[:] = map(max, most, cost)
        if found not in allowed:
            print(f"{kind} {name}: {found}", flush=True)
            found = "failed"
        counts[f"{kind}s {found}"] += 1
        if counts.total() % 500 == 0:
            print(f"{counts.total()} files: {dict(counts)}", flush=True)

    with tempfile.TemporaryDirectory(prefix="fuzz-") as temporary:
        path, table = Path(temporary, "m.tailwise"), Path(temporary, "t.csv")
        sources = {name: sound(name, path.parent) for name in NAMES}
        for name, source in sources.items():  # all is imported before processes divide and memory is counted
            path.write_bytes(source.data)
            try_model(path, source.rows)
            count("sound model", name, partial(try_model, path, source.rows), path, ("loads",))
        gc.freeze()
        for name, source in sources.items():
            for words, data, allowed in attacks(name, source):
                path.write_bytes(data)
                count("attack", f"{name} {words}", partial(try_model, path, source.rows), path, allowed)
        for number in range(given.models):
            source = sources[NAMES[number % len(NAMES)]]
            path.write_bytes(mutated(source, np.random.default_rng([given.seed, number])))
            count("model", str(number), partial(try_model, path, source.rows), path)
        for number in range(given.tables):
            table.write_bytes(malformed(number, np.random.default_rng([given.seed, number, 1])))
            count(
                "table", str(number), lambda: split_targets(read_table(table), ["price"], str(table)), table
            )
    print(f"{counts.total()} files, seed {given.seed}: {dict(counts)}", end="; ")
    print(f"at most {most[0]:.1f} s and {most[1] / 1e9:.2f} GB")
    sys.exit(1 if any(key.endswith("failed") for key in counts) else 0)


if __name__ == "__main__":
    main()
