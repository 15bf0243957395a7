"""What values of the options of `tailwise bench` mean."""

from __future__ import annotations

import pytest
import typer

from tailwise.cli.bench_options import parse_seeds


def test_seeds_are_a_number_or_a_list() -> None:
    assert parse_seeds(None) is None
    assert parse_seeds("3") == [0, 1, 2] and parse_seeds("0, 3") == [0, 3]
    for wrong, least in (("0", 1), ("1,x", 0), ("-2", 1)):
        with pytest.raises(typer.BadParameter, match=f"is not a whole number of at least {least}"):
            parse_seeds(wrong)
