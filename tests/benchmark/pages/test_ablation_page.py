"""The page of VIR's ablations."""

from pathlib import Path

import numpy as np
import pytest

from tailwise.benchmark.pages.ablation_page import WHOLE, write_ablations
from tailwise.benchmark.run.results import ResultsFile
from tests.benchmark.pages.conftest import make_record


def rows_of(page: str, section: str) -> dict[str, list[str]]:
    """Cells of the first table of a section, by the variant's title."""
    body = page.split(f"\n## {section}\n")[1].split("\n**")[1]
    rows = [line.strip("| ").split(" | ") for line in body.splitlines() if line.startswith("|")]
    return {row[0]: row[1:] for row in rows}


def test_shares_and_spreads_by_hand(tmp_path: Path) -> None:
    file = ResultsFile(tmp_path / "ablations.jsonl")
    levels = {WHOLE: (1.0, 2.0, 3.0), "vir[bins=20]": (4.0, 2.0, 6.0)}
    for method, by_seed in levels.items():
        for data, scale in (("x", 1.0), ("y", 10.0)):
            for seed, level in enumerate(by_seed):
                file.append(make_record(method, data, seed, level * scale))
    page = write_ablations(file.path, tmp_path / "ablations.md").read_text()
    rows = rows_of(page, "Bins")
    assert rows["VIR[FIXED]"][0] == "1.000 ± 0.500"  # means of x and y are 2 and 20
    assert rows["VIR[BINS=20]"][0] == f"2.000 ± {np.std((2, 1, 3), ddof=1):.3f}"
    assert rows["VIR[FIXED]"][2] == "-"  # a region without rows
    # NLL is a difference: on x by 2, 0, 4 from the mean 2; on y ten times that.
    assert rows["VIR[BINS=20]"][4] == f"+11.000 ± {np.std((11, 0, 22), ddof=1):.3f}"
    assert rows["VIR[FIXED]"][-1] == "-" and 0 <= float(rows["VIR[BINS=20]"][-1].replace("<", "")) <= 1
    assert "| VIR[BINS=20] | 4.00 ± 2.00 | 40.0 ± 20.0 |" in page
    assert "## Lambda" not in page


def test_a_page_needs_the_whole(tmp_path: Path) -> None:
    file = ResultsFile(tmp_path / "ablations.jsonl")
    file.append(make_record("vir[bins=20]", "x", 0, 1.0))
    with pytest.raises(ValueError, match=r"has no run of vir\[fixed\]"):
        write_ablations(file.path, tmp_path / "ablations.md")
