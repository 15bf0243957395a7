"""Options are what a constructor's signature says, and are checked by it."""

from __future__ import annotations

import math
from typing import Any, Literal

import pytest

from tailwise.options import Count, NotNegative, Positive, Share, Size, checked_options


class Made:
    def __init__(
        self,
        dim: int,
        *,
        weight: NotNegative = 1.0,
        scale: Positive = 2.0,
        share: Share = 0.5,
        size: Size | None = None,
        count: Count = 0,
        form: Literal["round", "square"] = "round",
        clip: tuple[float, Positive] | None = None,
        on: bool = False,
        free: Any = None,
        name: str = "a",
    ) -> None: ...


def check(**options: Any) -> dict[str, Any]:
    return checked_options("thing 'made'", "thing", Made, options)


def test_what_is_not_given_has_its_default_and_numbers_their_kind() -> None:
    assert check() == {
        "weight": 1.0, "scale": 2.0, "share": 0.5, "size": None, "count": 0, "form": "round", "clip": None,
        "on": False, "free": None, "name": "a",
    }  # fmt: skip
    found = check(weight=3, clip=[1, 2], size=7, free=object)
    assert (found["weight"], found["clip"], found["size"], found["free"]) == (3.0, (1.0, 2.0), 7, object)
    assert type(found["weight"]) is float


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"weigth": 1}, r"thing 'made' has no option 'weigth'; did you mean 'weight'\?"),
        ({"dim": 1}, "thing 'made' has no option 'dim'"),
        ({"weight": -1}, "thing.weight must be a number of at least 0, got -1"),
        ({"weight": math.nan}, "thing.weight must be a number, got nan"),
        ({"weight": True}, "thing.weight must be a number, got True"),
        ({"scale": 0}, "thing.scale must be a number above 0, got 0"),
        ({"share": 1.0}, r"thing.share must be a number in \[0, 1\), got 1.0"),
        ({"size": 0}, r"thing.size must be a whole number in \[1, 1048576\], got 0"),
        ({"count": 1.0}, "thing.count must be a whole number, got 1.0"),
        ({"form": "rond"}, r"unknown thing.form 'rond'; did you mean 'round'\?"),
        ({"clip": 3}, "thing.clip must be 2 numbers, got 3"),
        ({"clip": (1.0, -1.0)}, "thing.clip must be a number above 0, got -1.0"),
        ({"on": 1}, "thing.on must be true or false, got 1"),
        ({"name": 1}, "thing.name must be a text, got 1"),
    ],
)
def test_wrong_options_are_named(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        check(**options)


def test_an_option_without_a_default_must_be_given() -> None:
    def needy(*, power: float) -> None: ...

    with pytest.raises(ValueError, match="map needs the option 'power'"):
        checked_options("map", "map", needy, {})
