"""Run cases and write what they return, or compare it with a file: ``python -m tests.golden.record -h``."""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path

import torch

from tests.golden import commands, models, parts  # noqa: F401  (they register their cases)
from tests.golden.recording import CASES, differences, run, write


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", help="cases to run, in this order; all by default")
    target = parser.add_mutually_exclusive_group(required=True)
    target.add_argument("--out", type=Path, help="file to write")
    target.add_argument("--against", type=Path, help="write nothing and print differences from this file")
    parser.add_argument("--times", action="store_true", help="print the processor time of each case")
    given = parser.parse_args()
    torch.set_num_threads(1)
    records, total = {}, time.process_time()
    for name in given.names or CASES:
        start = time.process_time()
        records[name] = run(name)
        if given.times:
            sys.stdout.write(f"{time.process_time() - start:7.2f} s  {name}\n")
    if given.times:
        sys.stdout.write(f"{time.process_time() - total:7.2f} s  all\n")
    if given.against is None:
        write(given.out, records)
        return 0
    before, lines = json.loads(given.against.read_text()), []
    for name, record in records.items():
        lines += [f"{name}: {line}" for line in differences(before.get(name, {}), record)]
    lines += [f"{name}: no such case" for name in before if name not in CASES]
    # Compared as texts, in which NaN equals NaN.
    bits = [name for name, record in records.items() if json.dumps(before.get(name)) != json.dumps(record)]
    sys.stdout.write("".join(f"{line}\n" for line in lines))
    sys.stdout.write(f"{len(lines)} values differ; {len(bits)} of {len(records)} cases differ in some bit")
    sys.stdout.write(f": {', '.join(bits)}\n" if bits else "\n")
    return bool(lines)


if __name__ == "__main__":
    sys.exit(main())
