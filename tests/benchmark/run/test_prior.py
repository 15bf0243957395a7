"""The search for the prior: the grid first, then random ones around its best point."""

import itertools
import math
from pathlib import Path
from typing import Any

import pytest

from tailwise.benchmark import Recipe
from tailwise.benchmark.run import defaults
from tailwise.benchmark.run.defaults import choose_defaults, decisions
from tailwise.benchmark.run.prior import GRID, LEAST_ALPHA, OPTION, PriorStudy, searched_methods
from tailwise.benchmark.run.results import ResultsFile
from tailwise.benchmark.run.trace import changed_parts
from tailwise.methods import get_method

POINTS = {(0.0, *point) for point in itertools.product(*GRID.values())}


def loss(prior: tuple[float, ...]) -> float:
    """Least at nu 0.05, alpha 2, beta 0.2, between the points of the grid."""
    _, nu, alpha, beta = prior
    return math.log(nu / 0.05) ** 2 + (alpha - 2) ** 2 + math.log(beta / 0.2) ** 2


def proposals(method: str, trials: int) -> list[tuple[float, ...]]:
    study, found = PriorStudy(method, trials), []
    while (options := study.ask()) is not None:
        (prior,) = options.values()
        found.append(prior)
        study.tell(loss(prior))
    return found


@pytest.mark.parametrize("method", ["vir", "vir-paper"])
def test_the_present_prior_is_first_then_the_grid_then_a_smaller_range(method: str) -> None:
    found = proposals(method, 40)
    present = get_method(method).parts.head.options["prior"]
    assert found[0] == present and len(found) == len(set(found)) == 40
    assert set(found[: len(POINTS | {present})]) == POINTS | {present}
    best = min(POINTS | {present}, key=loss)
    random = found[len(POINTS | {present}) :]
    for (_, nu, alpha, beta), at in zip(random, _bests(found)[-len(random) :], strict=True):
        assert LEAST_ALPHA <= alpha <= at[2] + 0.5
        assert all(1 / 3.3 < value / centre < 3.3 for value, centre in ((nu, at[1]), (beta, at[3])))
    assert min(map(loss, found)) < loss(best)  # the smaller range is worth its trials
    assert found == proposals(method, 40)


def _bests(found: list[tuple[float, ...]]) -> list[tuple[float, ...]]:
    """The best prior before each proposal."""
    return [min(found[: i or 1], key=loss) for i in range(len(found))]


def test_a_failed_prior_is_not_the_centre_of_the_smaller_range() -> None:
    study = PriorStudy("vir-paper", 30)
    for place in range(30):
        options = study.ask()
        assert options is not None
        study.tell(math.inf if place else 1.0)
    assert study.ask() is None
    _, nu, alpha, _ = options[OPTION]
    present = get_method("vir-paper").parts.head.options["prior"]
    assert nu == pytest.approx(present[1], rel=2.3) and abs(alpha - present[2]) <= 0.5


def test_only_methods_with_a_proper_prior_are_searched() -> None:
    assert {"vir", "vir-paper", "vir-predictor"} <= set(searched_methods())
    assert not {"vanilla", "der", "vir-reference"} & set(searched_methods())
    with pytest.raises(ValueError, match=r"vanilla has no prior to search; these have one: .*vir-paper"):
        PriorStudy("vanilla", 5)


def test_the_search_is_run_checked_and_resumed(
    prepared: Path, tmp_path: Path, recipe: Recipe, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[Any] = []

    def scored(fit: defaults.Fit, **_: Any) -> tuple[float, float]:
        asked.append(fit)
        return math.exp(loss(tuple(fit.options[OPTION])) / 10), 0.1

    monkeypatch.setattr(defaults, "score_of", scored)
    out = tmp_path / "priors.jsonl"

    def run() -> int:
        return choose_defaults(
            prepared, out=out, seeds=(0, 1), recipe=recipe.within(trials=24), methods=["vir-paper"],
            study=PriorStudy, progress=False,
        ).done  # fmt: skip

    assert run() == 24 + 2  # the best and the present one once more, with the other seed
    (decision,) = decisions(ResultsFile(out).records)
    assert decision.adopted and loss(tuple(decision.best[OPTION])) < min(map(loss, POINTS))
    assert run() == 0 and len(asked) == 2 * 26  # two data sets
    assert not any(changed_parts(record) for record in ResultsFile(out).records)
