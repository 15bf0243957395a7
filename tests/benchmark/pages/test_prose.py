"""Sentences about results: what was run, and where the reference is better or worse."""

from tailwise.benchmark.pages.prose import data_sets, describe_runs, describe_times, describe_tuning, verdict
from tailwise.benchmark.pages.statistics import Results
from tailwise.benchmark.run.times import Times

Records = list[dict[str, object]]


def line_of(text: str, start: str) -> str:
    """The line that starts with some words."""
    return next(line for line in text.splitlines() if line.startswith(start))


def test_verdict_says_which_methods_are_better(records: Records) -> None:
    text = verdict(Results(records))
    line = line_of(text, "- **MAE few**")
    assert "VIR has average rank 2.00 of 3. The best is OTHER with 1.00." in line
    tested = "better than 1 others, worse than 1 (OTHER by 49.9%), undecided against 0."
    assert line.endswith(f"Test over seeds: {tested} Test over data sets: {tested}")
    assert "x (MAE 2 of 3, best OTHER, NLL 2 of 3, best OTHER); y (" in line_of(text, "- Rank of VIR")


def test_a_single_data_set_says_nothing_about_others(records: Records) -> None:
    single = verdict(Results(r for r in records if r["data"] == "x"))
    assert "Test over seeds" in single and "Test over data sets" not in single


def test_the_best_and_the_worst_are_called_so(records: Records) -> None:
    results = Results(records)
    assert "OTHER has average rank 1.00 of 3, the best. Test" in verdict(results, "other")
    worst = line_of(verdict(results, "vanilla"), "- **MAE all**")
    assert "VANILLA has average rank 3.00 of 3, the worst. The best is OTHER with 1.00." in worst


def test_a_figure_that_nobody_has_gives_no_rank(records: Records) -> None:
    medium = line_of(verdict(Results(records)), "- **MAE medium**")
    assert "VIR has no rank." in medium and medium.count("undecided against 2") == 2


def test_runs_are_described(records: Records) -> None:
    results = Results(records)
    text = describe_runs(results)
    assert "3 contenders on 2 data sets with seeds 0 to 4: 30 of 30 runs." in text
    assert "recipe: criterion balanced_mae, epochs 3." in text and "trials" not in text
    assert "The test over the 2 data sets" in text and "more than 100 training rows" in text
    assert "The data set comes with its own" in text  # no suite of tables is named
    tables = describe_runs(Results({**r, "suite": "tabular"} for r in records))
    assert "balanced over label bins" in tables
    one = Results(r for r in records if (r["data"], r["seed"]) == ("x", 0))
    assert data_sets(one) == "1 data set" and "with seed 0: 3 of 3 runs" in describe_runs(one)
    assert "The test over the" not in describe_runs(one)


def test_tuning_and_times_are_described(records: Records) -> None:
    assert "choice among 2 configurations" in describe_tuning(Results(records))
    untuned = [{**r, "recipe": {"trials": 1, "criterion": "mse"}} for r in records]
    assert describe_tuning(Results(untuned)) == (
        "- Early stopping uses the mse of the validation part. Nothing is tuned.\n"
    )
    assert describe_times(Times("a machine", 3, {})).startswith("- Times were measured on a machine: each")
