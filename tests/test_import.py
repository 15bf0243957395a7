"""What `from tailwise import TailRegressor` and a fit import, which a user waits for."""

import subprocess
import sys

CODE = """
import sys
from tailwise import TailRegressor
slow = {"matplotlib", "rich", "typer", "jinja2", "catboost", "sklearn.cluster", "sklearn.mixture"}
print(sorted(slow & {*sys.modules}))
import numpy as np
rows = np.random.default_rng(0).normal(size=(120, 2))
TailRegressor(epochs=1, base="hist-gradient-boosting").fit(rows, rows[:, 0]).predict_interval(rows)
print(sorted({"torch._dynamo", "sympy", "matplotlib"} & {*sys.modules}))
"""


def test_no_package_that_is_not_needed_is_imported() -> None:
    run = subprocess.run([sys.executable, "-c", CODE], capture_output=True, text=True, check=True)
    assert run.stdout.splitlines() == ["[]", "[]"]
