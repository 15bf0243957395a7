"""Numbers as text."""

import pytest

from tailwise.report.wording import number, pair, percent


def test_shares_are_whole_percentages() -> None:
    assert (percent(0.876), percent(0.0), percent(1.0)) == ("88%", "0%", "100%")


@pytest.mark.parametrize(
    ("value", "text"),
    [(0.0, "0"), (0.12345, "0.123"), (99.96, "100"), (123456.7, "123,457"), (float("nan"), "nan")],
)
def test_numbers_are_short(value: float, text: str) -> None:
    assert number(value) == text


@pytest.mark.parametrize(
    ("numbers", "texts"),
    [
        ((1.38, 1.43), ("1.38", "1.43")),
        ((423.35, 422.75), ("423.4", "422.8")),
        ((423.0, 422.997), ("423.000", "422.997")),
        ((0.12341, 0.12344), ("0.12341", "0.12344")),
        ((423.5, 422.9), ("423.5", "422.9")),  # 424 to 423 would be a difference of 1
        ((12345.0, 12399.0), ("12,345", "12,399")),
        ((5e9, 5e9 + 1), ("5000000000", "5000000001")),
        ((0.5, 0.5), ("0.5", "0.5")),
        ((float("nan"), float("nan")), ("nan", "nan")),
    ],
)
def test_numbers_that_differ_look_different(numbers: tuple[float, float], texts: tuple[str, str]) -> None:
    assert pair(*numbers) == texts
