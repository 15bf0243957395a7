"""Say whether the outputs of the golden cases are the same as at a commit: ``python compare.py COMMIT``.

Both states run their own cases with their own source on this machine, so differences of processors do not
count. Prints each value that differs, and the number of cases that are equal to the last bit.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

TOP = Path(__file__).resolve().parents[2]


def record(tree: Path, *arguments: str | Path) -> int:
    """Run the recorder of a tree with the source of that tree."""
    line = [sys.executable, "-m", "tests.golden.record", *map(str, arguments)]
    environment = {**os.environ, "PYTHONPATH": str(tree / "src"), "OMP_NUM_THREADS": "1"}
    return subprocess.run(line, cwd=tree, env=environment, check=False).returncode


def main() -> int:
    if len(sys.argv) != 2:
        sys.stderr.write("usage: python tests/golden/compare.py COMMIT\n")
        return 2
    with tempfile.TemporaryDirectory() as folder:
        tree, before = Path(folder) / "tree", Path(folder) / "before.json"
        git = ["git", "-C", str(TOP), "worktree"]
        subprocess.run([*git, "add", "--quiet", "--detach", str(tree), sys.argv[1]], check=True)
        try:
            if record(tree, "--out", before) != 0:
                sys.stderr.write(f"the golden cases of {sys.argv[1]} did not run\n")
                return 2
            return record(TOP, "--against", before)
        finally:
            subprocess.run([*git, "remove", "--force", str(tree)], check=True)


if __name__ == "__main__":
    sys.exit(main())
