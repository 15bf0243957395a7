"""A model file is refused whole if one field is missing, unknown, of a wrong type or beyond its limit."""

from __future__ import annotations

import copy
import tracemalloc
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tailwise import TailRegressor
from tests.estimator.saved_files import changed, leaves, parts_of, written

TARGET = ("targets", 0)
INTERVALS = (*TARGET, "intervals")


def forged(saved: Path, path: Path, place: tuple[Any, ...], value: Any) -> Path:
    """A file whose model has another value at a place."""
    model, weights = parts_of(saved)
    return written(path, changed(model, place, value), weights)


@pytest.mark.parametrize(
    ("place", "value", "message"),
    [
        (
            (*TARGET, "intervals"),
            {"class": "OwnIntervals"},
            "the intervals are not those of conformal='global'",
        ),
        ((*INTERVALS, "stretches", 0), ["45", 1], "stretches.0.0 is '45', not a number"),
        ((*TARGET, "scaling"), [1], r"targets.0.scaling is \[1\], not one of NIGScaling, VarianceScaling"),
        ((*TARGET, "emphasis"), 2.0, r"emphasis must be a number in \[0, 1\], got 2.0"),
        (("targets",), [], r"model.targets is \[\], not a list of 1 to 1000 values"),
        (("parts", "weights.radius"), 10**8, "weights.radius must be a whole number in"),
        (("parts", "members"), 999, "it declares 999 members, more than it holds"),
        (("parts", "kl.weight"), "0", "kl.weight must be a number, got '0'"),
        (("backbones", 0, "name"), "residual-ple", "weights are those of another network"),
        (("backbones", 0, "name"), "os", "unknown backbone 'os'"),
        (("backbones", 0, "widths"), [8], "unknown field 'widths'"),
        (("backbones",), [], "or those of a backbone of your own"),
        (("params", "many"), 10**400, "The 'many' parameter of TailRegressor must be an int in the range"),
        (("params", "device"), "xyz", "unknown device 'xyz'"),
        (("params", "method"), "__init__", "'__init__' is not the name of a method"),
        (("target_names",), ["a", "b"], "2 names for 1 targets"),
        (("record", "histories"), [], "there must be 1 to 1000 networks, each with a history"),
        (("feature_names_in",), ["a"], "1 names for 4 features"),
        (("table", "columns"), 5, "model.table.columns is 5, not a list"),
        (("extra",), 1, "model has an unknown field 'extra'"),
    ],
)
def test_wrong_fields_are_named_before_memory_is_taken(
    place: tuple[Any, ...], value: Any, message: str, saved: Path, tmp_path: Path
) -> None:
    path = forged(saved, tmp_path / "m", place, value)
    TailRegressor.load(saved)  # what torch imports by itself is not counted
    tracemalloc.start()
    with pytest.raises(ValueError, match=message) as caught:
        TailRegressor.load(path)
    assert str(path) in str(caught.value) and "\n" not in str(caught.value)
    assert tracemalloc.get_traced_memory()[1] < 20e6 + 50 * path.stat().st_size
    tracemalloc.stop()


def test_no_field_takes_a_list_of_lists(saved: Path, tmp_path: Path) -> None:
    """But for histories, which have any figures, and options that their own classes check."""
    for place in leaves(parts_of(saved)[0]):
        if place and not {"params", "parts", "history"} & set(place):
            with pytest.raises(ValueError):
                TailRegressor.load(forged(saved, tmp_path / "m", place, [["x"]]))


def test_a_model_that_could_not_be_loaded_is_not_written(simple: TailRegressor, tmp_path: Path) -> None:
    model = copy.copy(simple)
    model.model_ = replace(model.model_, record=replace(model.model_.record, recalibrated=-1))
    with pytest.raises(
        ValueError, match=r"cannot be saved: model\.record\.recalibrated must be a whole number"
    ):
        model.save(tmp_path / "m")
    assert not list(tmp_path.iterdir())
