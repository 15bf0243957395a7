"""Two models, region by region."""

from tailwise.report.baselines import Lineup
from tailwise.report.contrasts import Contrast, Outcome, Standing, best_by_region, contrasts_of, joined
from tailwise.report.scoring import Difference
from tests.report.made import Table

LOWER, HIGHER = Difference(1.0, 2.0, 0.5, 50), Difference(2.0, 1.0, 0.5, 50)
SLIGHTLY_LOWER, SLIGHTLY_HIGHER = Difference(1.0, 1.1, 0.5, 50), Difference(1.1, 1.0, 0.5, 50)


def outcome(mae: Difference, rmse: Difference) -> Outcome:
    return Contrast("few", mae, rmse).outcome


def test_a_region_is_better_only_if_no_measure_rises() -> None:
    assert outcome(LOWER, LOWER) == outcome(LOWER, SLIGHTLY_LOWER) == "better"
    assert outcome(SLIGHTLY_LOWER, LOWER) == "better"
    assert outcome(LOWER, SLIGHTLY_HIGHER) == outcome(LOWER, HIGHER) == "mixed"
    assert outcome(HIGHER, HIGHER) == outcome(HIGHER, SLIGHTLY_HIGHER) == "worse"
    assert outcome(HIGHER, SLIGHTLY_LOWER) == "mixed"
    assert outcome(SLIGHTLY_LOWER, SLIGHTLY_HIGHER) == "undecided"


def standing(rival: str, **outcomes: Difference) -> Standing:
    return Standing(rival, tuple(Contrast(r, d, d) for r, d in outcomes.items()), Difference(1, 1, 1, 9))


def test_a_standing_is_what_all_regions_say_together() -> None:
    near = Difference(1.0, 1.01, 0.02, 50)
    assert standing("a", many=SLIGHTLY_LOWER, few=LOWER).kind == "ahead"
    assert standing("a", many=SLIGHTLY_LOWER, few=HIGHER).kind == "behind"
    assert standing("a", many=HIGHER, few=LOWER).kind == "split"
    assert standing("a", many=near, few=near).kind == "close"
    assert standing("a", many=near, few=SLIGHTLY_LOWER).kind == "open"
    assert standing("a").kind == "open" and standing("a").sentence == ""
    assert standing("a", many=HIGHER, few=LOWER).sentence == (
        "Against a, the error is lower for rare labels (MAE 1 against 2; RMSE 1 against 2); higher for "
        "common labels (MAE 2 against 1; RMSE 2 against 1)."
    )


def test_the_baseline_that_is_better_in_most_regions_is_named() -> None:
    first = standing("first", many=HIGHER, medium=SLIGHTLY_HIGHER, few=LOWER)
    second = standing("second", many=HIGHER, medium=HIGHER, few=LOWER)
    assert best_by_region("ours", [first, second]) == {"many": "second", "medium": "second", "few": "ours"}
    assert best_by_region("ours", [first]) == {"many": "first", "few": "ours"}


def test_regions_with_few_rows_are_left_out() -> None:
    table = Table.of(100, 9, 30)
    (found,) = contrasts_of(Lineup(table.model(), table.model(seed=3, title="b")), min_rows=10)
    assert [c.region for c in found.contrasts] == ["many", "few"] and found.overall.n == 139
    assert joined(["a"]) == "a"
