"""Ablations of VIR: every variant can be trained and differs from the default."""

import pytest

from tailwise.benchmark import Problem, Recipe, run_one
from tailwise.benchmark.run.ablations import ablations, is_ablation


@pytest.mark.parametrize("group", ablations())
def test_every_ablation_runs_and_changes_something(group: str, problem: Problem, recipe: Recipe) -> None:
    first, *others = (run_one(c, problem, recipe, {}) for c in ablations()[group])
    assert first["method"] == "vir[fixed]"
    different = [record["metrics"] != first["metrics"] for record in others]
    # One of a group may be the default under another name (inference self).
    assert sum(different) >= len(others) - 1


def test_variants_are_known_by_their_names() -> None:
    names = [contender.name for group in ablations().values() for contender in group]
    assert all(map(is_ablation, names)) and not is_ablation("vir")
    for group in ablations().values():
        assert group[0].name == "vir[fixed]" and len(group) > 1
