"""What users see is what it was: the recorded outputs of the golden cases.

After a change of behaviour on purpose, ``python -m tests.golden.record`` records all cases anew.
"""

from __future__ import annotations

import functools
from typing import Any

import pytest

from tests.golden.cases import CASES
from tests.golden.recording import canary, differences, read, run

QUICK = {
    "columns", "command-diagnose", "dial", "distribution-nig", "given-base", "method-vir", "one-network",
    "saved", "several-targets", "smogn",
}  # fmt: skip
PARAMETERS: list[Any] = [
    pytest.param(name, marks=() if name in QUICK else pytest.mark.slow) for name in CASES
]
recorded = functools.cache(read)
here = functools.cache(canary)


def test_every_case_is_recorded() -> None:
    assert {"canary", *CASES} == set(recorded())


@pytest.mark.parametrize("name", PARAMETERS)
def test_outputs_are_those_recorded(name: str) -> None:
    if here() != recorded()["canary"]:
        pytest.skip(
            "this machine rounds unlike the one that recorded; to compare with a commit on this machine: "
            "python tests/golden/compare.py COMMIT"
        )
    lines = differences(recorded()[name], run(name))
    assert not lines, "\n".join(["outputs have changed:", *lines])


def test_a_changed_number_text_and_shape_are_told() -> None:
    recorded = {"number": [1.0, 2.0, float("nan")], "text": "a", "gone": 1}
    assert differences(recorded, {**recorded, "number": [1.0, 2.000001, float("nan")]}) == []
    found = differences(recorded, {"number": [1.0, 2.00001, float("nan")], "text": "b", "new": [1.0]})
    assert [line.split(":")[0] for line in found] == [
        "gone is missing",
        "number",
        "text",
        "new is not recorded",
    ]
    assert "1 of 3 numbers differ, by up to 5.0e-06" in found[1]
    assert differences({"number": [1.0]}, {"number": [1.0, 1.0]}) == ["number: shape (2,), recorded (1,)"]
