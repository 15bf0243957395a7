"""Scripts of benchmarks/ import what they share by its bare name, as when Python runs them."""

import sys
from pathlib import Path

# At the end: the name of a script, such as coverage, must not hide a package.
sys.path.append(str(Path(__file__).parents[2] / "benchmarks"))
