"""ONNX files that take raw columns, row by row against Python: differences, size and time.

    python benchmarks/onnx_columns.py
    python benchmarks/onnx_columns.py --rows 300 --tested 50 --bases none --epochs 2

The table has a number, a category, free text, a date, a time in a time zone and a duration, with missing
values. Test rows have texts with letters of any script, blanks and words that training did not have.
Differences are the largest over all test rows, in standard deviations of the labels. The last block encodes
texts of many words, without a network.
"""

from __future__ import annotations

import tempfile
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from script_options import script_parser
from tailwise import TailRegressor
from tailwise.data.tables.preprocessing import TablePreprocessor
from tailwise.onnx.export import OPSET, column_inputs
from tailwise.onnx.columns import raw_inputs
from tailwise.onnx.trial import columns_model

WORDS = (
    *("sunny", "loft", "garden", "studio", "cellar", "old", "new", "quiet", "Central"),
    *("ÉTAGE", "Straße", "view", "park", "small", "LARGE", "İzmir", "ΟΔΟΣ"),
)
LEVELS = (0.05, 0.5, 0.95)


def sales(rows: int, rng: np.random.Generator) -> tuple[pd.DataFrame, np.ndarray]:
    """Skewed prices of homes, with missing values."""
    texts = [" ".join(rng.choice(WORDS, rng.integers(1, 7))) for _ in range(rows)]
    table = pd.DataFrame(
        {
            "area": rng.lognormal(3, 1, rows),
            "kind": rng.choice(np.array(["flat", "house", "hut", None], dtype=object), rows),
            "text": pd.Series(texts, dtype=object),
            "listed": pd.Timestamp("2019-01-01") + pd.to_timedelta(rng.integers(0, 2000, rows), "D"),
            "sold": pd.Timestamp("2020-01-01", tz="Europe/Berlin")
            + pd.to_timedelta(rng.integers(0, 10**8, rows), "s"),
            "open": pd.to_timedelta(rng.integers(0, 10**6, rows), "s"),
        }
    )
    y = table["area"] * (1 + (table["kind"] == "house")) + 10 * np.array(["LARGE" in t for t in texts])
    for name in ("area", "text", "listed", "sold", "open"):
        table.loc[rng.random(rows) < 0.07, name] = None
    return table, (y + rng.normal(size=rows)).to_numpy()


def odd_texts(rows: int, rng: np.random.Generator) -> list[str]:
    """Known words with other characters put in, half of them in upper case."""
    others = [
        *" \t\n\u00a0'.Σσςİı\u0307\u0301",
        *map(chr, rng.integers(0x20, 0xD7FF, 200)),
        "\U0001f600",
        "ﬁ",
    ]
    texts = []
    for _ in range(rows):
        text = list(" ".join(rng.choice(WORDS, rng.integers(0, 5))))
        for _ in range(rng.integers(0, 4)):
            text.insert(int(rng.integers(0, len(text) + 1)), str(rng.choice(others)))
        texts.append("".join(text) if rng.random() < 0.5 else "".join(text).upper())
    return texts


def session_of(model: Any) -> Any:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    return onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])


def milliseconds(call: Any, times: int = 1) -> float:
    """Time of one call."""
    began = time.perf_counter()
    for k in range(times):
        call(k)
    return (time.perf_counter() - began) / times * 1000


def compare(base: str, rows: int, tested: int, epochs: int | None) -> dict[str, float]:
    """Fit, export and compare every output of every test row."""
    rng = np.random.default_rng(0)
    table, y = sales(rows, rng)
    test, _ = sales(tested, rng)
    test["text"] = odd_texts(tested, rng)
    model = TailRegressor(base=None if base == "none" else base, epochs=epochs or "auto", random_state=0)
    model.fit(table, y)
    with tempfile.TemporaryDirectory() as folder:
        path = model.export_onnx(Path(folder) / "m.onnx", quantiles=LEVELS, raw_columns=True)
        size, session = path.stat().st_size, session_of(str(path))
    given = column_inputs(model, test)
    found = dict(zip([o.name for o in session.get_outputs()], session.run(None, given), strict=True))
    lower, upper = model.predict_interval(test, 0.9).T
    wanted = {
        "prediction": model.predict(test),
        "quantiles": model.predict_quantiles(test, LEVELS),
        "lower": lower,
        "upper": upper,
    }
    off = {name: float(np.abs(found[name] - values).max() / y.std()) for name, values in wanted.items()}
    alone = [{name: values[k : k + 1] for name, values in given.items()} for k in range(min(100, tested))]
    return off | {
        "MB": size / 1e6,
        "ms a row alone": milliseconds(lambda k: session.run(None, alone[k]), len(alone)),
        "ms a row in all": milliseconds(lambda _: session.run(None, given)) / tested,
        "Python's ms a row in all": milliseconds(lambda _: model.predict_frame(test)) / tested,
    }


def long_texts(rows: int, words: int) -> dict[str, float]:
    """Encode texts of 20 out of many words, without a network."""
    rng = np.random.default_rng(1)
    letters, share = list("etaoinshrdlucmfwypvbgkjqxz"), np.arange(26, 0, -1.0)
    known = ["".join(rng.choice(letters, rng.integers(2, 10), p=share / share.sum())) for _ in range(words)]
    table = pd.DataFrame(
        {"n": rng.normal(size=rows), "text": [" ".join(rng.choice(known, 20)) for _ in range(rows)]}
    )
    preprocessor = TablePreprocessor().fit(table)
    data = columns_model(preprocessor, OPSET).SerializeToString()
    session, part = session_of(data), table[:500]
    given = raw_inputs(preprocessor, part)
    alone = [{name: values[k : k + 1] for name, values in given.items()} for k in range(100)]
    (found,) = session.run(None, given)
    step = next(s for s in preprocessor.vectorizer.all_processing_steps_["text"] if hasattr(s, "vectorizer_"))
    return {
        "runs of characters": len(step.vectorizer_.vocabulary_),
        "numbers that differ": int((found != preprocessor.matrix(part)).sum()),
        "MB": len(data) / 1e6,
        "ms a row alone": milliseconds(lambda k: session.run(None, alone[k]), len(alone)),
        "Python's ms a row alone": milliseconds(lambda k: preprocessor.matrix(part[k : k + 1]), 20),
        "ms a row of 500": milliseconds(lambda _: session.run(None, given)) / len(part),
        "Python's ms a row of 500": milliseconds(lambda _: preprocessor.matrix(part)) / len(part),
    }


def main() -> None:
    parser = script_parser(__doc__, rows=1500)
    parser.add_argument("--tested", type=int, default=2000, help="test rows")
    parser.add_argument(
        "--bases", nargs="+", default=["none", "catboost", "lightgbm", "hist-gradient-boosting"]
    )
    parser.add_argument("--epochs", type=int, default=None, help="epochs; chosen by the data by default")
    parser.add_argument("--words", type=int, default=5000, help="words of the long texts")
    chosen = parser.parse_args()
    warnings.simplefilter("ignore")  # of values unknown at fit, which the test rows have on purpose
    blocks = {
        f"base {base}": compare(base, chosen.rows, chosen.tested, chosen.epochs) for base in chosen.bases
    }
    for name, found in {**blocks, "long texts": long_texts(2 * chosen.rows, chosen.words)}.items():
        print(name)
        for key, value in found.items():
            print(f"  {key:26} {value:.3g}")


if __name__ == "__main__":
    main()
