"""Ours agrees with published code on golden input, or docs/deviations.md says by how much it does not."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

from tests.parity.comparisons import APART, GOLDEN, SAME, golden

TEXT = (Path(__file__).parents[2] / "docs" / "deviations.md").read_text(encoding="utf-8")
TOLERANCE = 1e-5
ROWS = dict(
    re.findall(
        r"^\| (.+?) \| .+? \| (below 1e-5|[\d.]+) \| .+ \|$", TEXT.partition("## Published code")[2], re.M
    )
)


@pytest.mark.parametrize("part", SAME)
def test_ours_is_what_the_published_code_gives(part: str) -> None:
    assert SAME[part]() < TOLERANCE
    assert ROWS[part] == "below 1e-5"


@pytest.mark.parametrize("part", APART)
def test_a_difference_is_as_large_as_the_page_says(part: str) -> None:
    assert APART[part]() == pytest.approx(float(ROWS[part]), rel=0.05)


def test_the_page_lists_every_comparison_and_no_other() -> None:
    assert set(ROWS) == {*SAME, *APART}


def test_golden_files_are_small_finite_and_described() -> None:
    readme = (GOLDEN / "README.md").read_text(encoding="utf-8")
    files = sorted(GOLDEN.glob("*.npz"))
    assert len(files) == 12 and sum(path.stat().st_size for path in files) < 200_000
    for path in files:
        assert f"`{path.stem}`" in readme
        assert all(np.isfinite(value).all() for value in golden(path.stem).values())
