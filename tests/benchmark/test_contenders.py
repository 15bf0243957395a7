"""What takes part: the tuning budget, every search space, variants and peers."""

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailwise.benchmark import Problem, Recipe, choose_contenders, from_registry, run_one
from tailwise.benchmark.ablations import ablations
from tailwise.benchmark.contenders import COMMON_SEARCH, nested, trial_options
from tailwise.benchmark.peers import missing_peers, peer_contenders
from tailwise.methods import available_methods, get_method

from .conftest import make_small_problem

spaces = st.dictionaries(
    st.sampled_from("abcd"),
    st.lists(st.integers(), min_size=1, max_size=4, unique=True).map(tuple),
    min_size=1,
)


@given(spaces, st.integers(1, 9))
def test_trials_are_distinct_points_of_the_grid_the_default_first(
    space: dict[str, tuple[Any, ...]], trials: int
) -> None:
    chosen = trial_options(space, trials)
    assert chosen[0] == {name: values[0] for name, values in space.items()}
    assert len({tuple(c.values()) for c in chosen}) == len(chosen)
    assert len(chosen) == min(trials, int(np.prod([len(v) for v in space.values()])))
    assert all(c[name] in space[name] for c in chosen for name in space)
    assert chosen == trial_options(space, trials)


@given(spaces)
def test_trials_cover_every_value_as_soon_as_they_can(space: dict[str, tuple[Any, ...]]) -> None:
    longest = max(map(len, space.values()))
    chosen = trial_options(space, longest)
    for name, values in space.items():
        assert {c[name] for c in chosen} == set(values)


def test_without_a_search_space_there_is_one_trial() -> None:
    assert trial_options({}, 5) == [{}]


@pytest.mark.parametrize("name", available_methods())
def test_every_search_space_starts_at_the_default_and_can_be_built(name: str) -> None:
    method = get_method(name)
    for option, values in method.search.items():
        part, _, key = option.partition(".")
        current = getattr(method.parts, part)
        found = (current.get(key) if isinstance(current, dict) else getattr(current, key)) if key else current
        if found is not None:  # an option that is left to its own default
            assert values[0] == found, option
        for value in values:
            method.parts.with_options(**nested({option: value}))


def test_every_contender_has_the_same_budget() -> None:
    trials = Recipe().trials
    counts = {c.name: len(trial_options(c.search, trials)) for c in choose_contenders("all,peers")}
    assert set(counts.values()) == {trials}, counts
    assert len(counts) >= len(available_methods())


def test_recipe_says_what_is_shared() -> None:
    recipe = Recipe().within(epochs=3, trials=2)
    assert recipe.train.epochs == 3 and recipe.trials == 2
    assert Recipe().within() == Recipe()
    assert recipe.describe()["monitor"] == recipe.criterion == "balanced_mae"
    with pytest.raises(ValueError, match="trials must be at least 1"):
        Recipe(trials=0)


def test_unknown_contender() -> None:
    with pytest.raises(ValueError, match="unknown contender 'vrr'; did you mean 'vir'"):
        choose_contenders("vanilla,vrr")


def test_chosen_by_name_is_tuned_chosen_by_ablation_is_not() -> None:
    vir, fixed = choose_contenders("vir,ablation-bins")[:2]
    assert set(COMMON_SEARCH) < set(vir.search)
    assert (fixed.name, fixed.search) == ("vir[fixed]", {})
    assert from_registry("ensemble").cost == 5


@pytest.mark.parametrize("group", ablations())
def test_every_ablation_runs_and_changes_something(group: str, problem: Problem, recipe: Recipe) -> None:
    first, *others = (run_one(c, problem, recipe, {}) for c in ablations()[group])
    assert first["method"] == "vir[fixed]"
    different = [record["metrics"] != first["metrics"] for record in others]
    # One of a group may be the default under another name (lambda 0.1, inference self).
    assert sum(different) >= len(others) - 1


def test_resampling_keeps_flags_whole(
    problem: Problem, recipe: Recipe, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tailwise import resampling

    seen: dict[str, Any] = {}

    def watched(name: str, x: np.ndarray, y: np.ndarray, **options: Any) -> tuple[np.ndarray, np.ndarray]:
        seen.update(options, rows=len(x))
        return x, y

    monkeypatch.setattr(resampling, "resample", watched)
    run_one(from_registry("smogn", tuned=False), problem, recipe, {})
    assert seen == {"seed": 0, "categorical": [3], "rows": 160}


# -- peers ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["catboost", "lightgbm", "ngboost"])
@pytest.mark.filterwarnings("ignore")  # what peers warn about is theirs
def test_peers_with_and_without_weights(name: str, recipe: Recipe) -> None:
    pytest.importorskip(name)
    problem = make_small_problem(rows=300)
    plain, weighted = (c for c in peer_contenders() if c.name.partition("-")[0] == name)
    assert weighted.title.endswith("+ LDS") and "weights.power" in weighted.search
    records = [run_one(c, problem, recipe) for c in (plain, weighted)]
    spread = float(np.abs(problem.y_test - problem.y_train.mean()).mean())
    for record in records:
        assert record["epochs"] % 10 == 0 and len(record["trials"]) == 2
        assert record["metrics"]["raw"]["all"]["mae"] < spread
    assert records[0]["metrics"] != records[1]["metrics"]
    outcome = plain.fit(problem, trial_options(plain.search, 1)[0], recipe)
    assert outcome.test.variance.min() > 0 and len(outcome.test) == 60


def test_missing_peers_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    import importlib.util

    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    assert missing_peers() == ["catboost", "lightgbm", "ngboost"]
    assert peer_contenders() == []


# -- prior ---------------------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore")
@pytest.mark.slow
def test_prior_search_tries_the_grid_then_looks_further_and_resumes(
    prepared: Path, tmp_path: Path, recipe: Recipe
) -> None:
    optuna = pytest.importorskip("optuna")
    from tailwise.benchmark.prior import GRID, search_prior

    storage = tmp_path / "deep" / "prior.log"
    found = search_prior(prepared, "one", storage=storage, trials=9, recipe=recipe)
    backend = optuna.storages.journal.JournalFileBackend(str(storage))
    study = optuna.load_study(study_name="one", storage=optuna.storages.JournalStorage(backend))
    tried = [tuple(t.params[name] for name in ("nu", "alpha", "beta")) for t in study.trials]
    assert set(tried[:8]) == {(n, a, b) for n in GRID["nu"] for a in GRID["alpha"] for b in GRID["beta"]}
    assert tried[8] not in tried[:8]
    assert found.score == min(t.value for t in study.trials) and found.trials == 9
    again = search_prior(prepared, "one", storage=storage, trials=9, recipe=recipe)
    assert again == found
    assert search_prior(prepared, "one", storage=storage, trials=10, recipe=recipe, workers=2).trials >= 10


def test_prior_search_needs_optuna(prepared: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from tailwise.benchmark.prior import search_prior

    monkeypatch.setitem(sys.modules, "optuna", None)
    with pytest.raises(ImportError, match=r"tailwise\[search\]"):
        search_prior(prepared, "one", storage=tmp_path / "prior.log")
