"""Compare methods on many data sets and seeds under one recipe, with error bars.

`bench` prepares the data of a suite, runs what is missing and writes the tables. `prepare`, `run_suite` and
`pages.suite_page.write_tables` are its steps. On the command line all of this is ``tailwise bench``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from tailwise.methods import load_plugin
from tailwise_bench.data.problems import DataSet, Problem, Source
from tailwise_bench.data.recipe import Recipe
from tailwise_bench.data.suites import SUITES, Suite, get_suite, prepare, suite_name, suite_of
from tailwise_bench.run.contenders import Contender, Outcome, choose_contenders, from_registry
from tailwise_bench.run.results import read_results
from tailwise_bench.run.run_once import run_one
from tailwise_bench.run.runs import Summary, run_missing, run_suite

__all__ = [
    "SUITES", "Contender", "DataSet", "Outcome", "Problem", "Recipe", "Source", "Suite", "Summary", "bench",
    "choose_contenders", "from_registry", "get_suite", "load_plugin", "prepare", "read_results", "run_one",
    "run_suite", "suite_name", "suite_of",
]  # fmt: skip


def bench(
    suite: str = "tabular",
    *,
    out: Path = Path("research/results"),
    work: Path = Path(".tailwise-bench"),
    methods: str | None = None,
    seeds: Sequence[int] | None = None,
    recipe: Recipe | None = None,
    workers: int = 1,
    time_limit: float | None = None,
    times: bool = False,
    progress: bool | None = None,
    report: Callable[[str], None] = lambda line: None,
) -> Summary:
    """Run what ``out/results.jsonl`` lacks of a suite and write ``out/suite.md`` and ``.csv``.

    `suite` is a name or a TOML file; by default methods, seeds and recipe are the suite's. Prepared data goes
    to `work` and is only needed while runs are missing. Peers that are not installed are reported and left
    out. With `times`, every contender is fitted once more after all runs to measure its cost
    (``out/times.jsonl``). With SQINV weights for all methods the files are ``suite-sqinv.jsonl``,
    ``suite-sqinv.md`` and so on, so that they can lie beside those of each method's own weights.
    """
    from tailwise_bench.pages.suite_page import write_tables
    from tailwise_bench.run.peers import missing_peers
    from tailwise_bench.run.times import missing_times, take_times

    budget, page = get_suite(suite), suite_name(suite)
    recipe = recipe or budget.recipe
    results, clock = out / "results.jsonl", out / "times.jsonl"
    if recipe.weights != "own":
        page = f"{page}-{recipe.weights}"
        results, clock = out / f"{page}.jsonl", out / f"{page}-times.jsonl"
    methods, seeds = methods or budget.methods, range(budget.seeds) if seeds is None else seeds
    contenders = choose_contenders(methods, budget.options)
    if "peers" in methods.split(","):
        for name in missing_peers():
            report(f"{name} is left out because it is not installed: pip install 'tailwise[peers]'")
    summary = run_missing(
        suite, contenders, out=results, work=work, seeds=seeds, recipe=recipe, workers=workers,
        time_limit=time_limit, progress=progress, report=report,
    )  # fmt: skip
    runs = read_results(results) if times and not summary.left and results.is_file() else []
    if missing_times(runs, contenders, clock):
        folder = work / suite_name(suite)
        prepare(suite, folder, seeds, report=report)
        taken = take_times(folder, runs, contenders, out=clock, recipe=recipe, progress=progress)
        report(f"took {taken.done} times in {taken.seconds:.0f} s")
    if results.is_file() and read_results(results):
        known = clock if clock.is_file() else None
        for path in write_tables(results, out, name=page, times=known):
            report(f"wrote {path}")
    return summary
