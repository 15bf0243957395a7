"""Methods as rows of parts: options, and the errors of wrong ones."""

from __future__ import annotations

import json
from typing import Any

import pytest
from torch import nn

from tailwise.labels.bins import LabelBins
from tailwise.methods import available_methods, get_method
from tailwise.networks.parts import Method
from tailwise.networks.vir import PRESETS, VIR


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"preset": "papers"}, r"unknown preset 'papers'; did you mean 'paper'\?"),
        ({"evidance.weight": 0.1}, r"unknown option 'evidance.weight'; did you mean 'evidence.weight'\?"),
        ({"weights.on": "counts"}, r"unknown weights.on 'counts'; did you mean 'count'\?"),
        ({"inference": "marginals"}, r"unknown inference 'marginals'; did you mean 'marginal'\?"),
        ({"losses": []}, "at least one loss, and each only once"),
        ({"smoothing": {"momentun": 0.5}}, r"no option 'momentun'; did you mean 'momentum'\?"),
        ({"weights": {"pwer": 1.0}}, r"weights 'density' has no option 'pwer'; did you mean 'power'\?"),
        ({"head": None}, "head must be a part such as 'point', got None"),
        ({"kl.weight": -1.0}, "kl.weight must be a number of at least 0, got -1.0"),
        ({"smoothing": 3}, "smoothing takes a name or a mapping of its options, not 3"),
        ({"members": 0}, r"members must be a whole number in \[1, 1000\], got 0"),
        ({"resampling": "smotter"}, r"unknown resampling 'smotter'; did you mean 'smoter'\?"),
    ],
)
def test_wrong_options_are_named_with_what_is_right(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        VIR(nn.Linear(3, 5), 5, LabelBins.from_labels([1, 2, 3]), **options)


def test_options_change_what_they_name_and_leave_the_rest() -> None:
    paper = PRESETS["paper"]
    options = {"weights": {"power": 1.0}, "smoothing.radius": 4, "kl.weight": 0.5, "members": 2}
    before, after = paper.as_options(), paper.with_options(**options).as_options()
    differ = {name for name in after if after[name] != before[name]}
    assert differ == {"weights.power", "smoothing.radius", "kl.weight", "members"}
    assert before.keys() == after.keys()


def test_losses_are_added_changed_exchanged_and_left_out() -> None:
    parts = get_method("ranksim").parts
    names = [loss.name for loss in parts.with_options(losses=["absolute", "ranksim"]).losses]
    assert names == ["absolute", "ranksim"]
    assert parts.with_options(losses=["absolute", "ranksim"]).loss("ranksim") == parts.loss("ranksim")
    assert parts.with_options(**{"ranksim.weight": 2.0}).as_options()["ranksim.weight"] == 2.0
    assert parts.with_options(ranksim=None).losses == Method().losses
    assert [loss.name for loss in parts.with_options(**{"kl.mean": True}).losses][-1] == "kl"


@pytest.mark.parametrize("name", available_methods())
def test_all_options_together_are_the_method(name: str) -> None:
    """Also from JSON, as saved models and results hold them."""
    parts = get_method(name).parts
    assert Method().with_options(**json.loads(json.dumps(parts.as_options()))) == parts
