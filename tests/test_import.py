"""What `from tailwise import TailRegressor` imports, which a user waits for."""

import subprocess
import sys


def test_the_estimator_needs_no_package_of_the_command_line_and_no_clustering() -> None:
    slow = {"matplotlib", "rich", "typer", "jinja2", "catboost", "sklearn.cluster", "sklearn.mixture"}
    code = f"import sys\nfrom tailwise import TailRegressor\nprint(sorted({slow} & set(sys.modules)))"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "[]"
