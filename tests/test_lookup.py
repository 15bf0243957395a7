"""Names that are found, and what a misspelt one is told."""

from __future__ import annotations

from typing import Any

import pytest

from tailwise.lookup import check_name, make_by_name, nearest


def scaled(x: float, *, factor: float = 1.0, offset: float = 0.0) -> float:
    return factor * x + offset


def plain(x: float) -> float:
    return x


REGISTRY = {"scaled": scaled, "plain": plain}


def test_the_nearest_choice_or_all_of_them_in_order() -> None:
    assert nearest("gausian", ["laplacian", "gaussian"]) == "; did you mean 'gaussian'?"
    assert nearest("zzz", ["b", "a"]) == "; choose one of a, b"


@pytest.mark.parametrize("name", ["lapacian", None, 3])
def test_a_name_that_is_not_a_choice_is_an_error(name: Any) -> None:
    check_name("kernel", "gaussian", {"gaussian": 1, "laplacian": 2})
    with pytest.raises(ValueError, match=f"unknown kernel {name!r}; "):
        check_name("kernel", name, {"gaussian": 1, "laplacian": 2})


def test_what_is_made_gets_arguments_and_options() -> None:
    assert make_by_name("map", REGISTRY, "plain", 3.0) == 3.0
    assert make_by_name("map", REGISTRY, "scaled", 3.0, options={"factor": 2.0, "offset": 1.0}) == 7.0


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("scald", {}, "unknown map 'scald'; did you mean 'scaled'"),
        ("scaled", {"fcator": 2.0}, "map 'scaled' has no option 'fcator'; did you mean 'factor'"),
        ("scaled", {"x": 2.0}, "map 'scaled' has no option 'x'; choose one of factor, offset"),
        ("plain", {"factor": 2.0}, "map 'plain' has no option 'factor'; it takes none"),
    ],
)
def test_unknown_names_and_options_are_errors(name: str, options: dict[str, float], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make_by_name("map", REGISTRY, name, 3.0, options=options)
