"""Tables as Markdown, and the format of numbers."""

import math

import pytest

from tailwise.benchmark.pages.markup import Table, best_cells, number, p_value, with_spread


def test_markdown() -> None:
    table = Table("A & B", ["m", "v_1"], [["a|b", "1 ± 2"], ["c", "<3"]], frozenset({(1, 1)}))
    assert table.markdown().splitlines() == [
        "**A & B**", "", "| m | v_1 |", "| --- | --: |", r"| a\|b | 1 ± 2 |", "| c | **<3** |",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.0, "0.00"),
        (1.0, "1.00"),
        (-12.345, "-12.3"),
        (1234.5, "1234"),
        (0.001234, "0.0012"),
        (math.nan, "-"),
    ],
)
def test_numbers_have_three_significant_digits_and_no_exponent(value: float, text: str) -> None:
    assert number(value) == text


def test_a_spread_has_the_decimals_of_its_mean() -> None:
    assert with_spread(12.345, 0.6789) == "12.3 ± 0.7"
    assert with_spread(1.0, math.nan) == "1.00"  # a single run
    assert with_spread(math.nan, math.nan) == "-"


def test_small_p_values_are_only_bounded() -> None:
    assert [p_value(p) for p in (math.nan, 0.0004, 0.001, 1.0)] == ["-", "<0.001", "0.001", "1.000"]


def test_best_cells_are_the_lowest_of_each_column_with_ties() -> None:
    columns = [[2.0, 1.0, 1.0], [math.nan, 5.0, math.nan], [math.nan] * 3]
    assert best_cells(columns) == {(1, 1), (2, 1), (1, 2)}
