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
from safetensors.torch import load as read_tensors
from typing_extensions import TypeAliasType

from tailwise.calibration.scaling import NIGScaling, VarianceScaling
from tailwise.distributions.members import NIG, Mixture, Normal
from tailwise.files.codec import decoded, encoded
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
        {"prior": [0.0, math.inf]},
    )


def test_arrays_are_annotated_as_numpy_before_and_after_2_5_does() -> None:
    scalar = TypeVar("scalar", bound=np.generic)
    alias: Any = TypeAliasType("alias", np.ndarray[tuple[Any, ...], np.dtype[scalar]], type_params=(scalar,))
    content = encoded(np.array([1.0, 2.0]), {})
    for kind in (NDArray[np.float64], alias[np.float64], Annotated[alias[np.float64], Items(2, 3)]):
        np.testing.assert_array_equal(decoded(kind, content)[0], [1.0, 2.0])


def test_what_is_written_is_read() -> None:
    content = encoded(example(), {"other": torch.ones(2)})
    assert content == encoded(example(), {"other": torch.ones(2)})
    again, arrays = decoded(Example, content)
    assert list(arrays) == ["other"] and torch.equal(arrays["other"], torch.ones(2))
    assert again.pair == (1, math.inf) and math.isnan(again.rows[0]["x"]) and again.many == (Inner(0, 1),)
    assert again.scaling == VarianceScaling(2.0) and again.by_name == {"one": Inner(1, 2)}
    assert again.free == {"prior": [0.0, math.inf]} and again.place == "here" and again.on is True
    np.testing.assert_array_equal(again.values, np.arange(3.0))
    assert isinstance(again.belief.components, NIG) and again.belief.shape == (3,)
    other = replace(example(), name="abc", scaling=None, place=7, belief=Normal(torch.zeros(2), 1.0))
    again, _ = decoded(Example, encoded(other, {}))
    assert (again.name, again.scaling, again.place) == ("abc", None, 7) and again.belief.shape == (2,)


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("share", 2.0, r"model.share must be a number in \[0, 1\], got 2.0"),
        ("count", 10**400, "model.count is 'a number of many digits', not a number up to"),
        ("name", "too long", "model.name is 'too long', not a text"),
        ("kind", "c", "unknown model.kind 'c'; choose one of a, b"),
        ("pair", [1], "model.pair has 1 values, not 2"),
        ("many", [{"class": "Inner", "low": 1, "high": 0}], "model.many.0: low must not exceed high"),
        ("many", [{"class": "Inner", "low": 1}], "model.many.0 lacks 'high'"),
        ("many", [{"class": "Inner", "low": 1, "high": 2, "x": 0}], "model.many.0 has an unknown field 'x'"),
        ("many", [{"class": "os.system"}], "model.many.0 is .*, not one of Inner"),
        ("by_name", [], r"model.by_name is \[\], not a mapping"),
        ("scaling", {"class": "Inner"}, "model.scaling is .*, not one of NIGScaling, VarianceScaling"),
        ("scaling", {"class": "VarianceScaling", "w": 0}, "model.scaling.w must be a number above 0, got 0"),
        ("values", [4], r"model.values is \[4\], not the shape of a stored array"),
        ("place", [], r"model.place is \[\], not one of str, int"),
        ("on", 1, "model.on must be true or false, got 1"),
    ],
)
def test_a_wrong_field_is_named(field: str, value: Any, message: str) -> None:
    text, _, weights = encoded(example(), {}).partition(b"\n")
    changed = json.dumps({**json.loads(text), field: value}).encode()
    with pytest.raises(ValueError, match=message):
        decoded(Example, changed + b"\n" + weights)


@pytest.mark.parametrize(
    ("values", "kind"),
    [([0.5, 1e3], torch.float16), ([0.1 + 2**-20, 1.0], torch.float64), ([2.0**30, 1.0], torch.float32)],
)
def test_arrays_take_the_smallest_type_that_holds_them(values: list[float], kind: torch.dtype) -> None:
    content = encoded(np.array(values), {})
    assert read_tensors(content.partition(b"\n")[2])["model"].dtype == kind
    again, _ = decoded(NDArray[np.float64], content)
    assert again.dtype == np.float64 and again.tolist() == values
