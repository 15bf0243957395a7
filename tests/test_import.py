"""What `from tailwise import TailRegressor` and a fit import, which a user waits for."""

import subprocess
import sys

import pytest

FIT = """
import numpy as np
rows = np.random.default_rng(0).normal(size=(120, 2))
TailRegressor(epochs=1, base="hist-gradient-boosting").fit(rows, rows[:, 0]).predict_interval(rows)
"""


@pytest.mark.parametrize(
    ("rest", "slow"),
    [
        ("", {"matplotlib", "rich", "typer", "jinja2", "catboost", "sklearn.cluster", "sklearn.mixture"}),
        (FIT, {"torch._dynamo", "sympy", "matplotlib"}),
    ],
    ids=["import", "fit"],
)
def test_no_package_that_is_not_needed_is_imported(rest: str, slow: set[str]) -> None:
    code = f"import sys\nfrom tailwise import TailRegressor\n{rest}\nprint(sorted({slow} & set(sys.modules)))"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "[]"
