"""What takes part: the tuning budget, every search space, variants and peers."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from tailwise.benchmark import Problem, Recipe, Source, choose_contenders, from_registry, run_one, run_suite
from tailwise.benchmark.data.recipe import BALANCED_OTHERWISE, default_options
from tailwise.benchmark.data.spaces import Range, search_space
from tailwise.benchmark.data.suites import get_suite
from tailwise.benchmark.pages.suite_page import write_tables
from tailwise.benchmark.run.tail_contender import tail_contender
from tailwise.benchmark.run.trace import changed_parts
from tailwise.data import load_abalone
from tailwise.methods import available_methods, build_model, get_method
from tailwise.metrics import get_metric
from tailwise.networks.backbones import Backbone
from tailwise.networks.parts import Method, Part
from tests.benchmark.conftest import Offset, make_small_problem


@pytest.mark.parametrize("name", available_methods())
def test_every_search_space_starts_at_the_default_and_can_be_built(name: str) -> None:
    method = get_method(name)
    for option, of in search_space(name, explore=True).items():
        assert default_options({option: of})[option] == method.parts.as_options()[option], option
        for value in (of.low, of.high) if isinstance(of, Range) else of:
            method.parts.with_options(**{option: value})


def test_every_contender_tunes_something_under_the_recipe() -> None:
    spaces = {c.name: c.space(Recipe()) for c in choose_contenders("all,peers")}
    assert all(spaces.values()) and len(spaces) >= len(available_methods())
    for name in available_methods():
        assert set(Recipe().search) <= set(spaces[name])


def test_what_a_suite_fixes_is_what_is_trained_and_recorded(monkeypatch: pytest.MonkeyPatch) -> None:
    """RankSim of the sentence pairs has its authors' weight, not the default that its search begins with."""
    built: list[Any] = []

    def spy(*args: Any, **options: Any) -> Any:
        built.append(build_model(*args, **options).method)
        return build_model(*args, **options)

    monkeypatch.setattr("tailwise.benchmark.run.contenders.build_model", spy)
    suite = get_suite("stsb-modern")
    (ranksim,) = choose_contenders("ranksim", suite.options)
    weight = suite.options["ranksim"]["ranksim.weight"]
    assert weight != get_method("ranksim").parts.as_options()["ranksim.weight"]
    recipe = Recipe(trials=1).within(epochs=1)
    record = run_one(ranksim, make_small_problem(), recipe, {})
    assert built[0].as_options()["ranksim.weight"] == weight
    assert record["fixed"] == {"ranksim.weight": weight} and "ranksim.weight" not in record["options"]

    fixed = from_registry("vir", lr=0.5, weights={"power": 0.25})
    assert {"lr", "weights.power", "evidence.weight"} <= set(from_registry("vir").space(recipe))
    assert not {"lr", "weights.power"} & set(fixed.space(recipe))
    assert "evidence.weight" in fixed.space(recipe)


def sentence_network(problem: Problem) -> Backbone:
    """Mean of the word vectors that the problem carries, of both sentences."""
    net = Backbone()
    net.feature_dim = problem.extra["vectors"].shape[1]
    vectors = torch.from_numpy(problem.extra["vectors"])
    net.forward = lambda x: vectors[x].mean((1, 2))  # type: ignore[method-assign]
    return net


def test_problems_need_not_be_tables(problem: Problem, recipe: Recipe, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)

    def words(n: int) -> np.ndarray:
        return rng.integers(0, 5, size=(n, 2, 3))

    pairs = replace(
        problem, x_train=words(160), x_valid=words(60), x_test=words(60),
        edges=np.linspace(-1, 9, 11), extra={"vectors": np.eye(5, 4, dtype=np.float32)},
    )  # fmt: skip
    pairs.save(tmp_path)
    pairs = Problem.load(tmp_path, "small", 0)
    assert pairs.describe()["features"] == 6 and len(pairs.bins) == 10
    own = replace(recipe, network=sentence_network, backbone="words", backbone_options={})
    record = run_one(from_registry("vir"), pairs, own)
    assert record["recipe"]["backbone"] == "words" and record["bins"] == 10
    with pytest.raises(
        ValueError, match=r"small is not a table: inputs of shape \(160, 2, 3\) need `network`"
    ):
        run_one(from_registry("vir"), pairs, recipe)
    with pytest.raises(ValueError, match="smogn interpolates between rows of a table, but small is not"):
        run_one(from_registry("smogn"), pairs, own)


def test_unknown_contender() -> None:
    with pytest.raises(ValueError, match="unknown contender 'vrr'; did you mean 'vir'"):
        choose_contenders("vanilla,vrr")


def test_chosen_by_name_is_tuned_chosen_by_ablation_is_not() -> None:
    vir, fixed = choose_contenders("vir,ablation-bins")[:2]
    assert "weights.power" in vir.search and "lr" in vir.space(Recipe())
    assert (fixed.name, fixed.space(Recipe())) == ("vir[fixed]", {})
    assert from_registry("ensemble").cost == 5


def test_resampling_keeps_flags_whole(
    problem: Problem, recipe: Recipe, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tailwise.resampling import smogn as resampling

    seen: dict[str, Any] = {}

    def watched(name: str, x: np.ndarray, y: np.ndarray, **options: Any) -> tuple[np.ndarray, np.ndarray]:
        seen.update(options, rows=len(x))
        return x, y

    monkeypatch.setattr(resampling, "resample", watched)
    run_one(from_registry("smogn", tuned=False), problem, recipe, {})
    assert seen == {"seed": 0, "categorical": [3], "rows": 160}


# -- peers ---------------------------------------------------------------------------------------


# -- prior ---------------------------------------------------------------------------------------


@pytest.mark.slow
def test_the_bound_of_the_paper_trains_if_it_is_averaged() -> None:
    """A KL of weight 1 that is summed over the latent's dimensions pulls predictions to a constant."""
    problem = Source("abalone", "Rings", load_abalone).problem(0, max_rows=800)
    recipe = Recipe(trials=1).within(epochs=20)
    errors, spreads = {}, {}
    for elbo in ("mean", "sum"):
        options = dict.fromkeys(("kl.mean", "reconstruction.mean"), elbo == "mean")
        prediction = from_registry("vir-paper", tuned=False, **options).fit(problem, {}, recipe).valid
        errors[elbo] = get_metric("balanced_mae")(prediction, problem.y_valid, problem.bins)
        spreads[elbo] = float(prediction.mean.std() / problem.y_valid.std())
    assert errors["mean"] < 0.8 * errors["sum"] and spreads["mean"] > 1.4 * spreads["sum"]


@pytest.mark.parametrize(
    ("method", "has_one"), [("vir", False), ("vir-paper", True), ("vir-reference", True)]
)
def test_presets_reconstruct_the_input(method: str, has_one: bool, problem: Problem, recipe: Recipe) -> None:
    built: list[tuple[int, int]] = []

    def decoder(given: Problem, latent_dim: int) -> nn.Module:
        built.append((given.x_train.shape[1], latent_dim))
        return nn.Linear(latent_dim, given.x_train.shape[1])

    own = replace(recipe, decoder=decoder)
    from_registry(method, tuned=False).fit(problem, {}, own)
    assert built == ([(4, 8)] if has_one else [])
    built.clear()
    from_registry(method, tuned=False, reconstruction=None if has_one else {}).fit(problem, {}, own)
    assert bool(built) != has_one


# -- the same weights for all --------------------------------------------------------------------


def weights_of(name: str, recipe: Recipe, **fixed: Any) -> Part | None:
    """The weights of a contender."""
    options = {**recipe.weight_options(name, fixed), **fixed}
    return get_method(name).parts.with_options(**options).weights


def test_all_methods_can_have_the_weights_of_the_paper() -> None:
    recipe = Recipe(weights="sqinv")
    for name in available_methods():
        own = get_method(name).parts.weights
        weights = weights_of(name, recipe)
        if name in BALANCED_OTHERWISE:
            assert weights == own
        else:
            given = {} if own is None else {key: own.options[key] for key in ("form", "on")}
            assert weights == Method(weights=Part("density", **given)).weights  # its defaults are SQINV
        assert weights_of(name, Recipe()) == own
    assert get_method("vanilla").parts.weights is None and get_method("vir").parts.weights is not None
    assert set(BALANCED_OTHERWISE) <= set(available_methods())


def test_weights_for_all_are_trained_recorded_and_not_tuned(problem: Problem, recipe: Recipe) -> None:
    sqinv = replace(recipe, weights="sqinv")
    plain, weighted = (run_one(from_registry("vanilla"), problem, r, {}) for r in (recipe, sqinv))
    lds = run_one(from_registry("vanilla", weights={}), problem, recipe, {})
    assert plain["metrics"] != weighted["metrics"] == lds["metrics"]
    assert weighted["recipe"]["weights"] == "sqinv" and "weights" not in plain["recipe"]
    row = weighted["trace"]["row"]
    assert (row["weights.on"], row["weights.power"]) == ("loss", 0.5) and not changed_parts(weighted)
    contender = from_registry("lds")
    assert "weights.power" in contender.space(recipe) and "weights.power" not in contender.space(sqinv)
    fixed = from_registry("lds", weights={"power": 0.9})  # what a suite fixes stays
    kept = weights_of("lds", sqinv, **fixed.fixed)
    assert kept is not None and kept.options["power"] == 0.9
    assert tail_contender().trace(sqinv)["row"] == tail_contender().trace(recipe)["row"]


def test_runs_with_other_weights_share_neither_a_file_nor_a_page(
    prepared: Path, tmp_path: Path, recipe: Recipe, offset: Offset
) -> None:
    out, sqinv = tmp_path / "results.jsonl", replace(recipe, weights="sqinv")
    other = tmp_path / "sqinv.jsonl"
    options: Any = {"seeds": (0,), "data": ["one"], "progress": False}
    run_suite(prepared, [offset.contender("vir")], out=out, recipe=recipe, **options)
    run_suite(prepared, [offset.contender("vanilla")], out=other, recipe=sqinv, **options)
    with pytest.raises(ValueError, match=r"has runs with each method's own weights, not with SQINV weights"):
        run_suite(prepared, [offset.contender("vir")], out=out, recipe=sqinv, **options)
    for order in ([out, other], [other, out]):
        with pytest.raises(ValueError, match=r"with weights = (own|sqinv).*: write a page for each"):
            write_tables(order, tmp_path)
    write_tables(other, tmp_path, name="page")
    page = (tmp_path / "page.md").read_text(encoding="utf-8")
    assert "Every method weights its rows by SQINV" in page and "These keep their own: INV, SQINV" in page
    with pytest.raises(ValueError, match="unknown weights 'sqinvs'; did you mean 'sqinv'"):
        replace(recipe, weights="sqinvs")


def test_options_of_a_method_hold_for_its_variants_too() -> None:
    given = {"vir": {"kl.weight": 0.5, "evidence.weight": 0.2}}
    chosen = choose_contenders("vir,vir[smoothing=none],vir[lambda=10],vir-predictor,ablation-latent", given)
    found = {c.name: c.fixed for c in chosen}
    assert found["vir"] == given["vir"]
    assert found["vir[smoothing=none]"] == {**given["vir"], "smoothing": None}
    assert found["vir[lambda=10]"] == {
        "kl.weight": 0.5,
        "evidence.weight": 10.0,
    }  # a variant's own option wins
    assert found["vir[fixed]"] == given["vir"]
    assert found["vir-predictor"] == {}
    assert all(c.fit.keywords["fixed"] == c.fixed for c in chosen)  # type: ignore[attr-defined]
