"""How golden outputs are compared; `make golden BASE=COMMIT` compares those of two states of the code."""

from tests.golden.recording import differences


def test_a_changed_number_text_and_shape_are_told() -> None:
    recorded = {"number": [1.0, 2.0, float("nan")], "text": "a", "gone": 1}
    assert differences(recorded, {**recorded, "number": [1.0, 2.000001, float("nan")]}) == []
    assert differences(recorded, {"number": [1.0, 2.00001, float("nan")], "text": "b", "new": [1.0]}) == [
        "gone is missing",
        "number: 1 of 3 differ, such as 2.00001, recorded 2.0",
        "text: 1 of 1 differ, such as 'b', recorded 'a'",
        "new is not recorded",
    ]
    assert len(differences({"number": [1.0]}, {"number": [1.0, 1.0]})) == 1
