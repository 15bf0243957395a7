"""Run golden cases and write what they return, or compare it: ``python -m tests.golden.record -h``.

A comparison prints each value that differs, and which cases are not equal to the last bit.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import torch

from tests.golden import commands, models, parts  # noqa: F401  (they register their cases)
from tests.golden.recording import CASES, differences, run

TOP = Path(__file__).resolve().parents[2]


def at_commit(commit: str) -> Any:
    """Return what a commit's own cases give with its own source on this machine.

    So differences of processors do not count.
    """
    with tempfile.TemporaryDirectory() as folder:
        tree, out = Path(folder) / "tree", Path(folder) / "out.json"
        git = ["git", "-C", str(TOP), "worktree"]
        subprocess.run([*git, "add", "--quiet", "--detach", str(tree), commit], check=True)
        try:
            environment = {**os.environ, "PYTHONPATH": str(tree / "src"), "OMP_NUM_THREADS": "1"}
            line = [sys.executable, "-m", "tests.golden.record", "--out", str(out)]
            subprocess.run(line, cwd=tree, env=environment, check=True)
            return json.loads(out.read_text())
        finally:
            subprocess.run([*git, "remove", "--force", str(tree)], check=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", help="cases to run, in this order; all by default")
    target = parser.add_mutually_exclusive_group(required=True)
    target.add_argument("--out", type=Path, help="file to write")
    target.add_argument("--against", type=Path, help="file to compare with")
    target.add_argument("--base", help="commit to compare with")
    given = parser.parse_args()
    torch.set_num_threads(1)
    records = {name: run(name) for name in given.names or CASES}
    if given.out:
        given.out.write_text(json.dumps(records, indent=0))
        return 0
    before = at_commit(given.base) if given.base else json.loads(given.against.read_text())
    lines = [f"{name}: no such case" for name in before if name not in CASES]
    for name, record in records.items():
        lines += [f"{name}: {line}" for line in differences(before.get(name, {}), record)]
    # Compared as texts, in which NaN equals NaN.
    bits = [name for name, record in records.items() if json.dumps(before.get(name)) != json.dumps(record)]
    sys.stdout.write("".join(f"{line}\n" for line in lines))
    sys.stdout.write(f"{len(lines)} values differ; {len(bits)} of {len(records)} cases differ in some bit")
    sys.stdout.write(f": {', '.join(bits)}\n" if bits else "\n")
    return bool(lines)


if __name__ == "__main__":
    sys.exit(main())
