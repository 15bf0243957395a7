"""Statistics against brute force: Holm by closed testing, Wilcoxon by enumeration, ranks by hand."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailwise.benchmark.comparison import Figure, Results, compare, holm


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
    assert results.seconds("a") == 1.0


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


def exact_wilcoxon(differences: np.ndarray) -> float:
    """Two-sided p-value over all assignments of signs."""
    ranks = np.argsort(np.argsort(np.abs(differences))) + 1.0
    observed = ranks[differences > 0].sum()
    middle = ranks.sum() / 2
    sums = [ranks[np.array(signs)].sum() for signs in itertools.product((True, False), repeat=len(ranks))]
    return float(np.mean([abs(s - middle) >= abs(observed - middle) - 1e-9 for s in sums]))


def test_paired_test_is_wilcoxons() -> None:
    rng = np.random.default_rng(0)
    ours, theirs = rng.uniform(1, 2, 8), rng.uniform(1.2, 2.4, 8)
    runs = [record("vir", f"d{i // 2}", i % 2, v) for i, v in enumerate(ours)]
    runs += [record("other", f"d{i // 2}", i % 2, v) for i, v in enumerate(theirs)]
    runs += [record("same", f"d{i // 2}", i % 2, v) for i, v in enumerate(ours)]
    other, same = compare(Results(runs), Figure("mae"))
    changes = np.log(theirs / ours)
    assert other.method == "other" and other.pairs == 8
    assert other.better == int((changes < 0).sum())
    assert other.change == pytest.approx(np.median(changes))
    assert other.p == pytest.approx(exact_wilcoxon(changes))
    assert other.adjusted == pytest.approx(min(1, 2 * other.p))
    assert (same.p, same.change, same.verdict()) == (1.0, 0.0, "open")


def test_pairs_are_the_runs_both_have() -> None:
    runs = [record("vir", "x", s, 1.0 + s) for s in range(6)]
    runs += [record("b", "x", s, 0.5 + s) for s in range(2, 9)] + [record("c", "y", 0, 1.0)]
    b, c = compare(Results(runs), Figure("mae"))
    assert b.pairs == 4 and b.better == 4
    assert c.pairs == 0 and math.isnan(c.p) and c.verdict() == "open"


def test_verdicts() -> None:
    runs = [record("vir", "x", s, 1.0) for s in range(10)]
    runs += [record("good", "x", s, 0.5 - 0.01 * s) for s in range(10)]
    runs += [record("bad", "x", s, 2.0 + 0.01 * s) for s in range(10)]
    assert [c.verdict() for c in compare(Results(runs), Figure("mae"))] == ["better", "worse"]


def test_different_data_is_an_error() -> None:
    runs = [record("a", "x", 0, 1.0), record("b", "x", 0, 1.0, digest="other")]
    with pytest.raises(ValueError, match="a and b saw different data in x, seed 0"):
        Results(runs)
    with pytest.raises(ValueError, match="no finished run"):
        Results([{"error": "x"}])
