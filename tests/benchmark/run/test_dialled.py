"""Rows under other label priors: the emphasis is chosen on the validation part alone."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
import torch

from tailwise.benchmark.data.problems import Problem
from tailwise.benchmark.data.recipe import Recipe
from tailwise.benchmark.run.contenders import Contender, Outcome, choose_contenders
from tailwise.benchmark.run.dialled import STEPS, with_dial
from tailwise.distributions.members import Normal


def _problem(test_shift: float = 0.0) -> Problem:
    y_train = np.concatenate([np.zeros(500), np.ones(50), np.full(10, 2.0), np.full(3, 3.0), [4.0] * 3])
    y = np.repeat(np.arange(5.0), 40)
    x = np.zeros((len(y_train), 1), np.float32)
    held = np.zeros((len(y), 1), np.float32)
    return Problem("small", 0, x, y_train, held, y, held, y + test_shift, total=len(y_train))


def _shrunken(problem: Problem, options: Mapping[str, Any], recipe: Recipe) -> Outcome:
    """Predictions that are drawn to the common label 0."""
    valid, test = (
        Normal(torch.tensor(0.6 * y) + 0.1, torch.full((len(y),), 0.6, dtype=torch.float64))
        for y in (problem.y_valid, problem.y_test)
    )
    return Outcome(valid, test, 1.0, 1.0, 1)


def test_the_emphasis_is_the_best_of_the_validation_part() -> None:
    contender = with_dial(Contender("own", "Own", _shrunken, uncertainty="aleatoric"))
    assert contender.names == ["own", "own[dial]", "own[dial for few shots]"]
    outcome = contender.fit(_problem(), {}, Recipe(criterion="mae"))
    few = _problem().bins.regions()[_problem().bins.index(_problem().y_valid)] == "few"
    for name, rows in (("own[dial]", np.ones_like(few)), ("own[dial for few shots]", few)):
        dialled = outcome.variants[name]
        assert dialled.emphasis is not None and dialled.emphasis > 0
        errors = []
        for of in (outcome.valid, dialled.valid):
            errors.append(np.abs(of.mean.numpy() - _problem().y_valid)[rows].mean())
        assert errors[1] < errors[0]
    elsewhere = contender.fit(_problem(test_shift=9.0), {}, Recipe(criterion="mae"))
    for name, dialled in elsewhere.variants.items():
        assert dialled.emphasis == outcome.variants[name].emphasis


def test_only_contenders_with_a_density_have_a_dial() -> None:
    assert STEPS[0] == 0
    chosen = choose_contenders("vir,vir[exponent=0.25 and dial]")
    assert [c.name for c in chosen] == ["vir", "vir[exponent=0.25]"]
    assert [bool(c.variants) for c in chosen] == [False, True]
    assert chosen[1].fixed == {"weights.power": 0.25}
    with pytest.raises(ValueError, match="unknown contender"):
        choose_contenders("vanilla[dial]")
