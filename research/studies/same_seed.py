"""Does the same seed give the same model: by threads, in threads, by container, by instruction set.

    python research/studies/same_seed.py --rows 1000

Each line is `TailRegressor(random_state=0)`, fitted in a process of its own to the same rows of a bundled
table. `in threads` fits four seeds at the same time. `difference` is the largest one of a prediction from the
first line, in standard deviations of the test labels. In the last three lines torch uses fewer instructions
and rounds as on another processor. All but ``polars`` fit a table of pandas.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from importlib.util import find_spec

import numpy as np
import torch

from tailwise.estimator import TailRegressor
from tailwise_bench.suites import get_suite
from tailwise_bench.tables import NaturalSplit, Table

VARIANTS = {
    "1 thread": {"OMP_NUM_THREADS": "1"},
    "2 threads": {"OMP_NUM_THREADS": "2"},
    "4 threads": {"OMP_NUM_THREADS": "4"},
    "in threads": {"OMP_NUM_THREADS": "1"},
    "polars": {"OMP_NUM_THREADS": "1"},
    "ATEN default": {"OMP_NUM_THREADS": "1", "ATEN_CPU_CAPABILITY": "default"},
    "ATEN avx2": {"OMP_NUM_THREADS": "1", "ATEN_CPU_CAPABILITY": "avx2"},
    "MKL SSE4.2": {"OMP_NUM_THREADS": "1", "MKL_ENABLE_INSTRUCTIONS": "SSE4_2"},
}


def split_of(name: str, rows: int) -> NaturalSplit:
    """Return the rows of a table of the suite ``quick``, or ``development``."""
    sources = [source for suite in ("quick", "development") for source in get_suite(suite).sources]
    table = next(source for source in sources if source.name == name)
    assert isinstance(table, Table)
    return table.natural_split(0, max_rows=rows)


def fitted(variant: str, split: NaturalSplit) -> dict[str, object]:
    """Fit one variant in this process; return its emphasis and its predictions of the test rows."""
    train, test = split.x_train, split.x_test
    if variant == "polars":
        import polars

        train, test = polars.from_pandas(train), polars.from_pandas(test)

    torch.set_num_threads(int(os.environ["OMP_NUM_THREADS"]))  # torch takes no more of them than cores

    def fit(seed: int) -> TailRegressor:
        return TailRegressor(random_state=seed).fit(train, split.y_train)

    with ThreadPoolExecutor(4) as pool:
        model, *_ = pool.map(fit, range(4 if variant == "in threads" else 1))
    return {"emphasis": model.emphasis_, "prediction": model.predict(test).tolist()}


def main() -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--rows", type=int, default=1000, help="maximum number of training rows")
    parser.add_argument("--data", default="abalone", help="a table of the suites quick and development")
    parser.add_argument("--only", choices=VARIANTS, help="fit one variant here and print it as JSON")
    options = parser.parse_args()
    split = split_of(options.data, options.rows)
    if options.only:
        print(json.dumps(fitted(options.only, split)))
        return 0
    print("| fit | emphasis | MAE | difference |\n|---|---|---|---|")
    first = None
    for variant, settings in VARIANTS.items():
        if variant == "polars" and find_spec("polars") is None:
            print("| polars | not installed | | |", flush=True)
            continue
        command = [sys.executable, __file__, "--rows", str(options.rows), "--data", options.data]
        run = subprocess.run(
            [*command, "--only", variant], env=os.environ | settings, check=True, capture_output=True
        )
        found = json.loads(run.stdout)
        prediction = np.array(found["prediction"])
        first = prediction if first is None else first
        missed, apart = np.abs(prediction - split.y_test).mean(), np.abs(prediction - first).max()
        print(
            f"| {variant} | {found['emphasis']:g} | {missed:.4f} | {apart / split.y_test.std():.2g} |",
            flush=True,
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
