"""Dataclasses come back from JSON and arrays; anything else is refused with the name of its place."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Annotated, Any, Literal, TypeVar

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from typing_extensions import TypeAliasType

from tailwise.calibration.scaling import NIGScaling, VarianceScaling
from tailwise.distributions.members import NIG, Mixture, Normal
from tailwise.files.codec import Arrays, from_plain, read, write
from tailwise.options import AnyNumber, Count, Fraction, Items


@dataclass(frozen=True)
class Inner:
    low: float
    high: float

    def __post_init__(self) -> None:
        if self.low > self.high:
            raise ValueError("low must not exceed high")


@dataclass(frozen=True, eq=False)
class Example:
    share: Fraction
    count: Count
    name: Annotated[str, Items(1, 5)] | None
    kind: Literal["a", "b"]
    pair: tuple[int, AnyNumber]
    rows: list[dict[str, AnyNumber]]
    many: Annotated[tuple[Inner, ...], Items(1, 3)]
    by_name: Mapping[str, Inner]
    scaling: NIGScaling | VarianceScaling | None
    values: NDArray[np.float64]
    belief: Normal | NIG | Mixture
    place: str | Count
    free: Any
    on: bool = True


def example() -> Example:
    return Example(
        0.5,
        3,
        None,
        "a",
        (1, math.inf),
        [{"x": math.nan, "y": 2}],
        (Inner(0.0, 1.0),),
        {"one": Inner(1.0, 2.0)},
        VarianceScaling(2.0),
        np.arange(3.0),
        Mixture(NIG(torch.zeros(2, 3), 1.0, 2.0, 3.0)),
        "here",
        {"prior": (0.0, math.inf)},
    )


def stored(value: Example) -> tuple[Any, Arrays]:
    arrays: Arrays = {}
    state = write(Example, value, "it", arrays)
    return json.loads(json.dumps(state, allow_nan=False), object_hook=from_plain), arrays


def test_arrays_are_annotated_as_numpy_before_and_after_2_5_does() -> None:
    scalar = TypeVar("scalar", bound=np.generic)
    alias: Any = TypeAliasType("alias", np.ndarray[tuple[Any, ...], np.dtype[scalar]], type_params=(scalar,))
    for kind in (NDArray[np.float64], alias[np.float64], Annotated[alias[np.float64], Items(2, 3)]):
        arrays: Arrays = {}
        state = write(kind, np.array([1.0, 2.0]), "it", arrays)
        np.testing.assert_array_equal(read(kind, state, "it", arrays), [1.0, 2.0])


def test_what_is_written_is_read() -> None:
    state, arrays = stored(example())
    assert state["values"] == [3] and list(state["scaling"]) == ["VarianceScaling"]
    again = read(Example, state, "it", arrays)
    assert arrays == {}
    assert again.pair == (1, math.inf) and math.isnan(again.rows[0]["x"]) and again.many == (Inner(0, 1),)
    assert again.scaling == VarianceScaling(2.0) and again.by_name == {"one": Inner(1, 2)}
    assert again.free == {"prior": (0.0, math.inf)} and again.place == "here" and again.on is True
    np.testing.assert_array_equal(again.values, np.arange(3.0))
    assert isinstance(again.belief.components, NIG) and again.belief.shape == (3,)
    other = replace(example(), name="abc", scaling=None, place=7, belief=Normal(torch.zeros(2), 1.0))
    again = read(Example, *stored(other)[:1], "it", stored(other)[1])
    assert (again.name, again.scaling, again.place) == ("abc", None, 7) and again.belief.shape == (2,)


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("share", 2.0, r"it.share must be a number in \[0, 1\], got 2.0"),
        ("count", 10**400, "it.count is a number of many digits, not a number up to"),
        ("name", "too long", "it.name is 'too long', not a text"),
        ("kind", "c", "unknown it.kind 'c'; choose one of a, b"),
        ("pair", [1], "it.pair has 1 values, not 2"),
        ("many", [{"low": 1, "high": 0}], "it.many.0: low must not exceed high"),
        ("many", [{"low": 1, "hihg": 0}], "it.many.0 has an unknown field 'hihg'; did you mean 'high'"),
        ("by_name", [], r"it.by_name is \[\], not a mapping"),
        ("scaling", {"os.system": {}}, "it.scaling is .*, not one of NIGScaling, VarianceScaling"),
        (
            "scaling",
            {"VarianceScaling": {"w": 0}},
            "it.scaling.VarianceScaling.w must be a number above 0, got 0",
        ),
        ("values", [4], r"it.values is \[4\], not the shape of a stored array"),
        ("place", [], r"it.place is \[\], not one of str, int"),
        ("on", 1, "it.on must be true or false, got 1"),
    ],
)
def test_a_wrong_field_is_named(field: str, value: Any, message: str) -> None:
    state, arrays = stored(example())
    with pytest.raises(ValueError, match=message):
        read(Example, {**state, field: value}, "it", arrays)


@pytest.mark.parametrize(
    ("values", "kind"),
    [([0.5, 1e3], torch.float16), ([0.1 + 2**-20, 1.0], torch.float64), ([2.0**30, 1.0], torch.float32)],
)
def test_arrays_take_the_smallest_type_that_holds_them(values: list[float], kind: torch.dtype) -> None:
    state, arrays = stored(replace(example(), values=np.array(values)))
    assert arrays["it.values"].dtype == kind
    again = read(Example, state, "it", arrays).values
    assert again.dtype == np.float64 and again.tolist() == values
