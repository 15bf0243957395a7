"""What `fit` notes about intervals."""

from __future__ import annotations

from dataclasses import replace

from tailwise.cli.fit import _negative_ends
from tailwise.labels.bins import LabelBins
from tests.report.made import Table


def test_intervals_below_zero_where_no_label_is() -> None:
    table = Table.of(100, 10, 10)
    assert _negative_ends(table.model(reach=0.0, jitter=0.0)) > 0  # some labels are 0
    assert _negative_ends(table.model(reach=9.0)) == 120
    moved = replace(table.model(reach=9.0), bins=LabelBins.from_labels([-1.0, 0.0, 3.0]))
    assert _negative_ends(moved) == _negative_ends(replace(table.model(), lower=table.y)) == 0
