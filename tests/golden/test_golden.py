"""How golden outputs are compared; `make golden BASE=COMMIT` compares those of two states of the code."""

from __future__ import annotations

from tests.golden.recording import differences


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
