"""Names that are found, and what a misspelt one is told."""

from __future__ import annotations

from typing import Any

import pytest

from tailwise.lookup import check_name, nearest


def test_the_nearest_choice_or_all_of_them_in_order() -> None:
    assert nearest("gausian", ["laplacian", "gaussian"]) == "; did you mean 'gaussian'?"
    assert nearest("zzz", ["b", "a"]) == "; choose one of a, b"


@pytest.mark.parametrize("name", ["lapacian", None, 3])
def test_a_name_that_is_not_a_choice_is_an_error(name: Any) -> None:
    check_name("kernel", "gaussian", {"gaussian": 1, "laplacian": 2})
    with pytest.raises(ValueError, match=f"unknown kernel {name!r}; "):
        check_name("kernel", name, {"gaussian": 1, "laplacian": 2})
