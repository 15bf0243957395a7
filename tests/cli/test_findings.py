"""Findings of commands as JSON."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

from tailwise.cli.findings import Finding, emphasis_of, findings_json
from tailwise.cli.fit import _negative_ends
from tailwise.labels.bins import LabelBins
from tests.report.made import Table, lined_up


def finding(target: str) -> Any:
    return SimpleNamespace(to_dict=lambda: {"target": target})


def test_one_target_is_at_the_top_level_and_several_are_a_list() -> None:
    assert findings_json([]) == {"target": None, "verdict": None}
    assert findings_json([finding("a")]) == {"target": "a"}
    assert findings_json([finding("a"), finding("b")]) == {"targets": [{"target": "a"}, {"target": "b"}]}
    model = Table.of(100, 10, 10).model()
    names = ["target", "verdict", "regions", "baseline", "base", "constant"]
    assert set(Finding("a", lined_up(model, model, model)).to_dict()) == set(names)


def test_the_emphasis_in_use() -> None:
    one, two = SimpleNamespace(emphasis_=0.3), SimpleNamespace(emphasis_=[0.1, 0.2], target_names_=["a", "b"])
    assert emphasis_of(one) == 0.3 and emphasis_of(two) == {"a": 0.1, "b": 0.2}
    assert emphasis_of(one, {"emphasis": 1.0}) == 1.0 and emphasis_of(one, {"label_prior": [1]}) is None


def test_intervals_below_zero_where_no_label_is() -> None:
    table = Table.of(100, 10, 10)
    assert _negative_ends(table.model(reach=0.0, jitter=0.0)) > 0  # some labels are 0
    assert _negative_ends(table.model(reach=9.0)) == 120
    moved = replace(table.model(reach=9.0), bins=LabelBins.from_labels([-1.0, 0.0, 3.0]))
    assert _negative_ends(moved) == _negative_ends(replace(table.model(), lower=table.y)) == 0
