"""Statistics against oracles: Holm by closed testing, the paired test by SciPy, ranks by hand."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from tailwise.benchmark.pages.statistics import Figure, Results, compare, holm


def record(
    method: str, data: str, seed: int, mae: float, nll: float = 0.0, **more: object
) -> dict[str, object]:
    raw = {region: {"mae": mae, "nll": nll, "coverage": 0.9} for region in ("all", "many", "medium", "few")}
    calibrated = {region: {"nll": nll - 1, "coverage": 0.8} for region in raw}
    metrics = {"raw": raw, "calibrated": calibrated}
    base = {"data": data, "method": method, "title": method.upper(), "seed": seed, "digest": f"{data}{seed}"}
    return {**base, "metrics": metrics, "seconds": {"fit": 1.0}, **more}


@given(st.lists(st.floats(1e-9, 1), min_size=1, max_size=6))
def test_holm_is_closed_testing_with_bonferroni(p_values: list[float]) -> None:
    places = range(len(p_values))
    subsets = [s for k in range(1, len(p_values) + 1) for s in itertools.combinations(places, k)]
    for i, adjusted in enumerate(holm(p_values)):
        worst = max(min(1.0, len(s) * min(p_values[j] for j in s)) for s in subsets if i in s)
        assert adjusted == pytest.approx(worst)


def test_holm_passes_over_what_is_unknown() -> None:
    assert holm([0.01, math.nan, 0.02])[0] == pytest.approx(0.02)
    assert math.isnan(holm([0.01, math.nan])[1])
    assert holm([]) == []


def test_average_ranks_by_hand() -> None:
    table = {"a": {"x": 1.0, "y": 3.0}, "b": {"x": 2.0, "y": 1.0}, "c": {"x": 2.0, "y": 2.0}}
    runs = [
        record(m, d, s, value + shift)
        for m, row in table.items()
        for d, value in row.items()
        for s, shift in enumerate((-0.1, 0.1))
    ]
    # On x: a first, b and c share 2.5. On y: b, c, a.
    assert Results(runs).average_ranks(Figure("mae")) == {"a": 2.0, "b": 1.75, "c": 2.25}


def test_a_contender_without_a_run_has_no_rank() -> None:
    runs = [record("a", "x", 0, 1.0), record("a", "y", 0, 1.0), record("b", "x", 0, 2.0)]
    ranks = Results(runs).average_ranks(Figure("mae"))
    assert ranks["a"] == 1.0 and math.isnan(ranks["b"])
    few = [record("a", "x", 0, math.nan)]
    assert math.isnan(Results(few).average_ranks(Figure("mae"))["a"])


def test_mean_and_spread_over_seeds() -> None:
    results = Results([record("a", "x", s, v) for s, v in enumerate((1.0, 2.0, 6.0))])
    assert results.mean_std(Figure("mae"), "x", "a") == (3.0, pytest.approx(math.sqrt(7)))
    assert math.isnan(results.mean_std(Figure("mae"), "x", "b")[0])
    assert math.isnan(Results([record("a", "x", 0, 1.0)]).mean_std(Figure("mae"), "x", "a")[1])


def test_calibrated_figures_fall_back_to_raw_where_calibration_changes_nothing() -> None:
    run = record("a", "x", 0, 2.0, nll=5.0)
    assert Figure("mae", calibrated=True).of(run) == 2.0
    assert (Figure("nll").of(run), Figure("nll", "few", calibrated=True).of(run)) == (5.0, 4.0)
    assert Figure("coverage").loss(0.7) == pytest.approx(0.2)
    assert (
        Figure("coverage", "few").name == "coverage few" and Figure("balanced_mae").name == "balanced MAE all"
    )


def test_changes_are_free_of_units() -> None:
    assert Figure("mae").change(2.0, 1.0) == Figure("mae").change(200.0, 100.0) == pytest.approx(math.log(2))
    assert Figure("nll").change(3.0, 1.0) == 2.0
    results = Results([record(m, d, 0, v) for d, a, b in (("x", 1.0, 2.0), ("y", 50.0, 25.0)) for m, v in
                       (("a", a), ("b", b))])  # fmt: skip
    assert results.relative(Figure("mae"), "b", "a") == pytest.approx(1.0)  # twice and half


def test_relative_by_seed_is_against_the_mean_of_the_reference() -> None:
    runs = [record("a", d, s, v) for d, values in (("x", (1.0, 3.0)), ("y", (10.0, 30.0))) for s, v in
            enumerate(values)]  # fmt: skip
    runs += [record("b", "x", 0, 4.0), record("b", "y", 0, 20.0), record("b", "x", 1, 9.0)]
    results = Results(runs)
    np.testing.assert_allclose(results.relative_by_seed(Figure("mae"), "a", "a"), [0.5, 1.5])
    # Seed 1 of b lacks y. Means of a are 2 and 20: twice, and the same.
    np.testing.assert_allclose(results.relative_by_seed(Figure("mae"), "b", "a"), [math.sqrt(2)])
    np.testing.assert_allclose(results.relative_by_seed(Figure("nll"), "b", "a"), [0.0])
    nothing = Results([record("a", "x", 0, math.nan)])
    assert nothing.relative_by_seed(Figure("mae"), "a", "a").size == 0


def test_paired_test_is_students_on_the_means_of_data_sets() -> None:
    rng = np.random.default_rng(0)
    ours, theirs = rng.uniform(1, 2, (4, 3)), rng.uniform(1.2, 2.4, (4, 3))
    places = list(np.ndindex(4, 3))
    runs = [record("vir", f"d{i}", s, ours[i, s]) for i, s in places]
    runs += [record("other", f"d{i}", s, theirs[i, s]) for i, s in places]
    runs += [record("same", f"d{i}", s, ours[i, s]) for i, s in places]
    other, same = compare(Results(runs), Figure("mae"))
    by_data = np.log(theirs / ours).mean(axis=1)
    assert (other.method, other.units, other.better) == ("other", 4, int((by_data < 0).sum()))
    assert other.change == pytest.approx(by_data.mean())
    assert other.error == pytest.approx(stats.sem(by_data))
    assert other.p == pytest.approx(stats.ttest_1samp(by_data, 0).pvalue)
    assert other.adjusted == pytest.approx(min(1, 2 * other.p))
    assert (same.p, same.change, same.verdict()) == (1.0, 0.0, "open")


def test_seeds_that_agree_are_no_evidence_about_other_data_sets() -> None:
    """Two equal contenders, whose data sets favour one or the other at random and all seeds alike."""
    rng = np.random.default_rng(0)
    found = by_pairs = 0
    for _ in range(300):
        change = 0.2 * rng.normal(size=(7, 1)) + 0.02 * rng.normal(size=(7, 5))
        runs = [record("vir", f"d{i}", s, 1.0) for i, s in np.ndindex(7, 5)]
        runs += [record("b", f"d{i}", s, math.exp(change[i, s])) for i, s in np.ndindex(7, 5)]
        found += compare(Results(runs), Figure("mae"))[0].p < 0.05
        by_pairs += stats.wilcoxon(change.ravel()).pvalue < 0.05
    assert found / 300 == pytest.approx(0.05, abs=0.03)
    assert by_pairs / 300 > 0.25


def test_over_seeds_is_students_on_means_over_data_sets() -> None:
    rng = np.random.default_rng(1)
    change = rng.normal(0.3, 0.2, (4, 5))
    runs = [record("vir", f"d{i}", s, 1.0) for i, s in np.ndindex(4, 5)]
    runs += [record("b", f"d{i}", s, math.exp(change[i, s])) for i, s in np.ndindex(4, 5)]
    (b,) = compare(Results(runs), Figure("mae"), over="seeds")
    by_seed = change.mean(axis=0)
    assert b.units == 5 and b.change == pytest.approx(change.mean())
    assert b.error == pytest.approx(stats.sem(by_seed))
    assert b.p == pytest.approx(stats.ttest_1samp(by_seed, 0).pvalue)


def test_units_are_what_both_have() -> None:
    runs = [record("vir", "x", s, 1.0 + s) for s in range(6)] + [record("vir", "y", 3, 1.0)]
    runs += [record("b", "x", s, (1.0 + s) / (1 + s % 2)) for s in range(2, 9)] + [record("c", "z", 0, 1.0)]
    b, c = compare(Results(runs), Figure("mae"))
    assert (b.units, b.better) == (1, 1) and math.isnan(b.p) and b.verdict() == "open"
    assert b.change == pytest.approx(-math.log(2) / 2)  # seeds 2 to 5: same, half, same, half
    assert c.units == 0 and math.isnan(c.p) and math.isnan(c.change) and c.verdict() == "open"
    runs.append(record("b", "y", 3, 3.0))
    b, c = compare(Results(runs), Figure("mae"), over="seeds")
    assert b.units == 1 and b.change == pytest.approx(math.log(3 / 2) / 2)  # y has seed 3 alone
    assert c.units == 0 and math.isnan(c.p)


def test_verdicts() -> None:
    runs = [record("vir", "x", s, 1.0) for s in range(10)]
    runs += [record("good", "x", s, 0.5 - 0.01 * s) for s in range(10)]
    runs += [record("bad", "x", s, 2.0 + 0.01 * s) for s in range(10)]
    runs += [record("always", "x", s, 2.0) for s in range(10)]
    found = compare(Results(runs), Figure("mae"), over="seeds")
    assert [c.verdict() for c in found] == ["better", "worse", "worse"] and found[2].p == 0.0
    assert [c.verdict() for c in compare(Results(runs), Figure("mae"))] == ["open"] * 3


def test_different_data_is_an_error() -> None:
    runs = [record("a", "x", 0, 1.0), record("b", "x", 0, 1.0, digest="other")]
    with pytest.raises(ValueError, match="a and b had different data in x, seed 0"):
        Results(runs)
    with pytest.raises(ValueError, match="no finished run"):
        Results([{"error": "x"}])
