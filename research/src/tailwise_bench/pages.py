"""Pages of results: tables by one pivot, words by one template a kind of page."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import jinja2
import numpy as np

from tailwise.methods import get_method
from tailwise.metrics.regions import REGIONS
from tailwise.report.results import Record, finished_runs, read_records, read_results
from tailwise.writing import write_atomically
from tailwise_bench.choose import groups
from tailwise_bench.estimators import BEST, FORMS, RARE, REFERENCE, all_estimators
from tailwise_bench.own_splits import pairs_page, regions_page
from tailwise_bench.pivot import Cell, fixed, means, number, p_value, pivot
from tailwise_bench.recipe import BALANCED_OTHERWISE
from tailwise_bench.statistics import (
    HEADLINES,
    RATIOS,
    Effect,
    Figure,
    Results,
    effect,
    nanmean,
    p_values,
    planned,
)
from tailwise_bench.suites import Suite
from tailwise_bench.trace import EQUAL_SINCE

TEMPLATES = Path(__file__).parent / "templates"
CALIBRATED_ROWS = ("vir", "der", "lds-fds-der", "ensemble", "infer-noise")
"""Methods shown before and after calibration, as in the paper."""
GOOD_COVERAGE = (0.85, 0.95)
NATURAL = (
    *(Figure("mae"), Figure("mae", "rare"), Figure("rmse"), Figure("crps"), Figure("crps", "rare")),
    Figure("interval_score"),
)
CROSSED = "catboost-cv"
RIVALS = (BEST, REFERENCE, "catboost-mae", "catboost-gaussian", CROSSED, "constant")
"""What TailRegressor is compared with beside the reference of a page of estimators."""
TESTED = Figure("balanced_mae")
Times = Mapping[tuple[str, str], Record]
"""Lines of timed fits, by data set and method."""


# -- a suite of methods --------------------------------------------------------------------------


def suite_page(suite: Suite, results: Results, times: Times) -> dict[str, Any]:
    """Ranks and errors beside a base, tests against the reference, calibration, data sets, tuning, times."""
    first, titles = results.records[0], results.titles
    regions = (*REGIONS, "hole") if "hole" in first["metrics"]["raw"] else REGIONS
    headlines = (*HEADLINES, *(Figure("mae", region) for region in regions if region == "hole"))
    ranks = {f: results.average_ranks(f) for f in headlines}
    main = ranks[HEADLINES[0]]
    rows = {m: titles[m] for m in sorted(results.methods, key=lambda m: (math.isnan(main[m]), main[m]))}
    reference = suite.reference if suite.reference in results.methods else results.methods[0]
    base = "vanilla" if "vanilla" in results.methods else reference
    tuned = {record["method"] for record in results.records if "trials" in record}
    compared = suite.planned if reference == "vir" and len(results.seeds) > 1 else ()
    families = {f: planned(results, f, reference, compared) for f in headlines}
    tested = {of.rival for family in families.values() for of in family}

    def rank(figure: Figure, method: str) -> tuple[str, float]:
        return number(ranks[figure][method]), ranks[figure][method]

    def relative(figure: Figure, method: str) -> tuple[str, float]:
        value = results.relative(figure, method, base)
        return fixed(value, ".3f" if figure.metric in RATIOS else "+.3f"), value

    def explored(figure: Figure, method: str) -> str:
        return _effect(effect(results, figure, method, reference), figure)

    def seconds(data: str, method: str) -> str:
        return number(times[data, method]["seconds"]["fit"] if (data, method) in times else math.nan, 2)

    def ratio_of_times(method: str) -> str:
        logs = []
        for data in results.data:
            pair = [times[data, m]["seconds"]["fit"] for m in (method, base) if (data, m) in times]
            logs.append(math.log(pair[0] / pair[1]) if len(pair) == 2 else math.nan)
        return number(math.exp(np.mean(logs)), 2)

    figures = [
        *(Figure("mae", r) for r in regions),
        *(Figure("nll", r, True) for r in regions),
        *(Figure("crps", r, True) for r in regions if r not in ("many", "medium")),
    ]
    covered = [Figure("coverage", "many", True), Figure("coverage", "few", True)]
    overview: dict[str, Cell] = {
        **{f.name: partial(relative, f) for f in figures},
        **{f"90% {f.name}": partial(_plain_mean, results, f) for f in covered},
        **({"time": ratio_of_times} if times else {}),
        **(_spent(results) if "budget" in first["recipe"] else {}),
    }
    base_title = titles[base]
    return {
        "base": base,
        "reference": titles[reference],
        "verdict": [_headline(results, f, reference, ranks[f], families[f]) for f in headlines],
        "overview": [
            pivot(
                f"Average rank of {len(rows)} contenders; 1 is best",
                {f.name: partial(rank, f) for f in headlines},
                rows,
            ),
            pivot(
                f"MAE and calibrated CRPS as shares of {base_title}'s (geometric means over data sets), "
                f"NLL minus {base_title}'s, coverage of calibrated 90% intervals"
                f"{', time of a fit beside its' if times else ''}",
                overview,
                rows,
            ),
        ],
        "planned": _planned(results, families, reference),
        "explored": pivot(
            f"{titles[reference]} against each other contender [95% interval]",
            {_full_name(f): partial(explored, f) for f in headlines},
            {m: title for m, title in rows.items() if m != reference and m not in tested},
            "other",
        ),
        "fixed": [titles[m] for m in results.methods if m not in tuned],
        "calibration": _calibration(results),
        "tables": [_data_table(results, data, rows, regions) for data in results.data],
        "tuning": _tuning(results),
        "times": pivot(
            "Processor seconds of one fit, without tuning",
            {data: partial(seconds, data) for data in results.data},
            rows if times else {},
        ),
        "timed": next(iter(times.values()), None),
    }


def _plain_mean(results: Results, figure: Figure, method: str) -> str:
    """Format the mean over data sets."""
    return fixed(nanmean(results.means(figure, method)))


def _spent(results: Results) -> dict[str, Cell]:
    """Return columns of trials and cost of each contender where it was tuned, on average over data sets."""

    def mean(unit: str, method: str) -> str:
        tuned = [r for r in results.records if r["method"] == method and r["seed"] == results.seeds[0]]
        return number(
            nanmean(len(r.get("trials", [1])) if unit == "trials" else r["spent"][unit] for r in tuned)
        )

    heads = {"trials": "trials", "seconds, with tuning": "seconds", "gradients, with tuning": "gradients"}
    return {head: partial(mean, unit) for head, unit in heads.items()}


def _headline(
    results: Results, figure: Figure, reference: str, ranks: Mapping[str, float], family: Sequence[Effect]
) -> dict[str, Any]:
    """Return the rank of the reference by one figure, the best contender, and the planned comparisons."""
    known = {method: rank for method, rank in ranks.items() if not math.isnan(rank)}
    best = min(known, key=lambda m: known[m]) if known else reference
    rivals = []
    for verdict, text in (
        ("better", "better than"),
        ("worse", "worse than"),
        ("open", "not decided against"),
    ):
        if names := [results.titles[of.rival] for of in family if of.verdict == verdict]:
            rivals.append(f"{text} {', '.join(names)}")
    return {
        "figure": _full_name(figure),
        "rank": number(known.get(reference, math.nan)),
        "of": len(ranks),
        "best": results.titles[best],
        "best_rank": number(known.get(best, math.nan)),
        "rivals": rivals,
    }


def _full_name(figure: Figure) -> str:
    return f"{'calibrated ' if figure.calibrated else ''}{figure.name}"


def _planned(results: Results, families: Mapping[Figure, Sequence[Effect]], reference: str) -> list[str]:
    """Return effects against the planned rivals with stars where one is decided, and their p-values."""
    cells = {(figure, of.rival): of for figure, family in families.items() for of in family}
    rivals = {rival: results.titles[rival] for _, rival in cells}

    def starred(figure: Figure, rival: str) -> str:
        of = cells[figure, rival]
        return _effect(of, figure) + ("" if of.verdict == "open" else " *")

    def adjusted(figure: Figure, rival: str) -> str:
        return p_value(cells[figure, rival].adjusted)

    effects = f"{results.titles[reference]} against each rival [95% interval]; * Holm p below 0.05"
    return [
        pivot(caption, {_full_name(f): partial(cell, f) for f in families}, rivals, "rival")
        for caption, cell in ((effects, starred), ("Holm p", adjusted))
        if rivals
    ]


def _effect(of: Effect, figure: Figure) -> str:
    """Format a ratio or a difference with its interval."""
    if math.isnan(of.change):
        return "-"
    ratio = figure.metric in RATIOS
    middle, low, high = (math.exp(v) if ratio else v for v in (of.change, of.low, of.high))
    form = ".3f" if ratio else "+.3f"
    return f"{middle:{form}}" + ("" if math.isnan(low) else f" [{low:{form}}, {high:{form}}]")


def _calibration(results: Results) -> str:
    kinds = {f"{m} {c}": (m, c) for m in CALIBRATED_ROWS if m in results.methods for c in (False, True)}

    def mean(figure: Figure, key: str) -> str:
        method, calibrated = kinds[key]
        return _plain_mean(results, replace(figure, calibrated=calibrated), method)

    regions = ("all", "many", "few")
    columns = {f"NLL {r}": partial(mean, Figure("nll", r)) for r in regions}
    columns |= {f"90% coverage {r}": partial(mean, Figure("coverage", r)) for r in regions}
    return pivot(
        "Before and after calibration on the validation part, mean over data sets",
        {**columns, "ENCE": partial(mean, Figure("ence"))},
        {key: results.titles[m] + (", calibrated" if c else "") for key, (m, c) in kinds.items()},
    )


def _data_table(results: Results, data: str, rows: Mapping[str, str], shown: Sequence[str]) -> str:
    figures = [*(Figure("mae", r) for r in shown), Figure("nll", "all", True), Figure("nll", "few", True)]
    figures += [Figure("ause", "all", True), Figure("coverage", "few", True)]
    record = next(r for r in results.records if r["data"] == data)
    size, regions = record["rows"], record["test_rows"]
    return pivot(
        f"{data}: {size['train']} training rows of {size['table']}, {record['features']} features, "
        f"{record['bins']} bins; test rows many {regions['many']}, medium {regions['medium']}, few "
        f"{regions['few']}; mean ± standard deviation over seeds; NLL, AUSE and coverage calibrated",
        means(results, {f.name: (f, data) for f in figures}),
        {method: title for method, title in rows.items() if results.runs(data, method)},
    )


def _tuning(results: Results) -> str:
    """Return the search space of every method and how often its default was chosen."""
    tuned = {m: [r for r in results.records if r["method"] == m and "search" in r] for m in results.methods}

    def space(method: str) -> str:
        return "; ".join(f"{name} {_searched(of)}" for name, of in tuned[method][0]["search"].items())

    def kept(method: str) -> str:
        spaces = tuned[method][0]["search"].items()
        first = {k: of["default"] if isinstance(of, dict) else of[0] for k, of in spaces}
        count = sum(all(r["options"][k] == v for k, v in first.items()) for r in tuned[method])
        return f"{count}/{len(tuned[method])}"

    columns: dict[str, Cell] = {
        "trials": lambda m: str(len(tuned[m][0]["trials"])),
        "search space, default first": space,
        "default kept": kept,
    }
    rows = {method: results.titles[method] for method in results.methods if tuned[method]}
    return pivot("Tuning: the same number of configurations for every contender", columns, rows)


def _searched(of: Any) -> str:
    if isinstance(of, dict):
        return f"{of['default']:g} in {of['low']:g} to {of['high']:g}{' (log)' if of['log'] else ''}"
    return ", ".join(f"{v:g}" if isinstance(v, float) else str(v) for v in of)


# -- ablations -----------------------------------------------------------------------------------


def ablations_page(suite: Suite, results: Results, times: Times) -> dict[str, Any]:
    """Two tables for every group with runs of at least two variants."""
    shown = []
    for name, contenders in groups().items():
        if not name.startswith("ablation-"):
            continue
        # Stored lines may have variants that the group has no more.
        prefixes = {method.partition("=")[0] for method in contenders if "=" in method}
        others = [m for m in results.methods if "=" in m and m.partition("=")[0] in prefixes]
        names = dict.fromkeys([*(method for method in contenders if method in results.methods), *others])
        if len(names) > 1:
            part = Results(r for r in results.records if r["method"] in names)
            rows = {method: part.titles[method] for method in names}
            shown.append(
                {"name": name.removeprefix("ablation-"), "tables": _group(part, rows, suite.reference)}
            )
    return {"groups": shown, "vir": get_method("vir").parts.as_options()}


def _group(results: Results, rows: Mapping[str, str], whole: str) -> list[str]:
    figures = [
        TESTED,
        *(Figure("mae", r) for r in REGIONS[1:]),
        *(Figure("nll", r, True) for r in ("all", "few")),
    ]
    tested = p_values(results, TESTED, whole)

    def share(figure: Figure, method: str) -> str:
        values = results.by_seed(figure, method, whole)
        if not values.size:
            return "-"
        values, sign = (np.exp(values), "") if figure.metric in RATIOS else (values, "+")
        return f"{values.mean():{sign}.3f}" + (f" ± {values.std(ddof=1):.3f}" if values.size > 1 else "")

    shares: dict[str, Cell] = {f.name: partial(share, f) for f in figures}
    shares[f"{TESTED.name}: Holm p over seeds"] = lambda m: p_value(tested.get(m, math.nan))
    by_data = means(results, {data: (TESTED, data) for data in results.data}, bold=False)
    return [
        pivot("As shares of, and differences from, VIR", shares, rows, "variant"),
        pivot(f"{TESTED.name} on each data set", by_data, rows, "variant"),
    ]


# -- estimators on natural splits ----------------------------------------------------------------


def best_forms(records: Sequence[Record]) -> list[Record]:
    """Return a line for each table and seed: that of CatBoost's form with the lowest held-out MAE.

    Its time is that of all forms.
    """
    forms: dict[tuple[str, int], list[Record]] = {}
    for record in records:
        if record["method"] in FORMS and "valid" in record:
            forms.setdefault((record["data"], record["seed"]), []).append(record)
    lines = []
    for several in forms.values():
        if len(several) == len(FORMS):
            best = min(several, key=lambda r: float(r["valid"]["mae"]))
            seconds = {**best["seconds"], "fit": sum(r["seconds"]["fit"] for r in several)}
            named = {"method": BEST, "title": "CatBoost, best form", "form": best["title"]}
            lines.append({**best, **named, "seconds": seconds})
    return lines


def equal_width(results: Results, data: str, method: str) -> float:
    """Return the mean over seeds of widths divided by those of CV+ that covers as many of the rarest labels.

    The width of CV+ is interpolated between two points of its curve, and stays the last one beyond them.
    """
    crossed, ratios = results.runs(data, CROSSED), []
    for seed, run in results.runs(data, method).items():
        if "curve" in crossed.get(seed, {}):
            covered, widths = np.array(crossed[seed]["curve"]).T
            ours = run["metrics"]["raw"]
            at = np.interp(ours["rare"]["coverage"], np.maximum.accumulate(covered), widths)
            ratios.append(ours["all"]["width"] / at)
    return nanmean(ratios)


def estimator_page(suite: Suite, results: Results, times: Times) -> dict[str, Any]:
    """Every estimator divided by the reference, coverage of the rarest labels, errors and times by table."""
    known = [estimator.name for estimator in all_estimators()]
    known.insert(1, BEST)
    titles, base, data = results.titles, suite.reference, results.data
    rows = {m: titles[m] for m in known if m in results.methods}
    with_rare = {line: titles[line] for m in rows for line in (m, m + RARE) if line in titles}
    low, high = GOOD_COVERAGE
    rare = Figure("coverage", "rare")

    def ratio(figure: Figure, method: str) -> tuple[str, float]:
        values = np.ones(1)
        if method != base:
            values = np.exp(results.by_seed(figure, method, base))
        if not values.size:
            return "-", math.nan
        spread = f" ± {values.std(ddof=1):.3f}" if values.size > 1 else ""
        return f"{values.mean():.3f}{spread}", float(values.mean())

    def ahead(figure: Figure, method: str) -> str:
        by_table = results.changes(figure, method, base).groupby(level=0).mean()
        return "-" if method == base else f"{int((by_table < 0).sum())}/{by_table.size}"

    def divided(figure: Figure, method: str) -> str:
        return fixed(results.relative(figure, method, base))

    def width(labels: str, method: str) -> str:
        by_table = results.changes(Figure("width", labels), method, base).groupby(level=0).mean()
        return fixed(math.exp(nanmean(by_table)))

    def seconds(table: str, method: str) -> str:
        return number(nanmean(run["seconds"]["fit"] for run in results.runs(table, method).values()), 2)

    def covered(table: str, method: str) -> str:
        return fixed(results.mean_std(rare, table, method)[0])

    def within(method: str) -> str:
        means = [mean for mean in results.means(rare, method) if not math.isnan(mean)]
        return f"{sum(low <= mean <= high for mean in means)}/{len(means)}"

    def equal(method: str) -> str:
        by_table = [of for d in data if not math.isnan(of := equal_width(results, d, method))]
        if not by_table:
            return "-"
        mean = np.exp(np.mean(np.log(by_table)))
        return f"{mean:.3f} ({min(by_table):.3f} to {max(by_table):.3f})"

    overview: dict[str, Cell] = {
        **{f.name: partial(ratio, f) for f in NATURAL},
        **{f"{f.name}: tables ahead": partial(ahead, f) for f in (NATURAL[0], NATURAL[1], NATURAL[4])},
        **{f"{kind} time": partial(_time_ratio, results, kind, base) for kind in ("fit", "predict")},
        "runs": lambda m: str(sum(r["method"] == m for r in results.records)),
    }
    scores = NATURAL[5], Figure("interval_score", "rare")
    coverage: dict[str, Cell] = {
        **{table: partial(covered, table) for table in data},
        f"{low:g} to {high:g}": within,
        "all labels": partial(_plain_mean, results, Figure("coverage")),
        "width rare": partial(width, "rare"),
        "width all": partial(width, "all"),
        **{f.name: partial(divided, f) for f in scores},
        "width / CV+'s at equal coverage of rare labels": equal,
    }
    shown = [m for m in dict.fromkeys(("tail", base, *RIVALS)) if m in rows]
    return {
        "base": titles[base],
        "estimators": len(set(rows) - {BEST}),
        "rivals": [_against(results, m) for m in shown if m != "tail"] if "tail" in rows else [],
        "forms": {
            table: ", ".join(run["form"].removeprefix("CatBoost, ") for run in runs.values())
            for table in data
            if (runs := results.runs(table, BEST))
        },
        "covered": [
            {"title": title, **{r: results.means(Figure("coverage", r), m) for r in ("all", "rare")}}
            for m, title in with_rare.items()
            if m.removesuffix(RARE) in shown
        ],
        "overview": pivot(
            f"Divided by {titles[base]}'s (geometric mean over tables; mean ± standard deviation over seeds)",
            overview,
            rows,
            "estimator",
        ),
        "coverage": pivot(
            "Coverage of 90% intervals for the rarest labels by table (mean over seeds), tables in limits, "
            "coverage of all labels; widths for the rarest and for all labels, interval scores for all and "
            f"for the rarest labels, divided by {titles[base]}'s; widths divided by those of CV+ with as "
            "many of the rarest labels inside, with least and most by table",
            coverage,
            with_rare,
            "estimator",
        ),
        "tables": [
            pivot(
                f"{f.name}, mean ± standard deviation over seeds",
                means(results, {table: (f, table) for table in data}),
                rows,
                "estimator",
            )
            for f in NATURAL
        ],
        "times": pivot(
            "Processor seconds of a fit on one thread",
            {table: partial(seconds, table) for table in data},
            rows,
            "estimator",
        ),
    }


def _against(results: Results, rival: str) -> dict[str, Any]:
    """Compare TailRegressor with a rival: ratios, tables ahead, and tables behind beyond chance."""
    effects = {f: effect(results, f, rival, "tail") for f in NATURAL}
    known = {f: of for f, of in effects.items() if not math.isnan(of.change)}
    places = []
    for figure in (f for f in (NATURAL[0], NATURAL[5]) if f in known):
        by_data = {}
        for data in results.data:
            of = effect(Results(r for r in results.records if r["data"] == data), figure, rival, "tail")
            if not math.isnan(of.change):
                by_data[data] = of
        worse = [f"{data} {_effect(of, figure)}" for data, of in by_data.items() if of.low > 0]
        places.append(
            f"Its {figure.name} is lower on {sum(of.change < 0 for of in by_data.values())} of "
            f"{len(by_data)} tables, higher beyond chance on {', '.join(worse) or 'none'}"
        )
    ratios = [f"{f.name} {_effect(of, f)}" for f, of in known.items()]
    return {"title": results.titles[rival], "ratios": ratios, "places": places}


def _time_ratio(results: Results, kind: str, base: str, method: str) -> str:
    """Return the geometric mean over tables and seeds of a time divided by the reference's.

    Each is first divided by the unit of time of its own process, if both have one.
    """
    logs = []
    for data in results.data:
        ours, theirs = results.runs(data, method), results.runs(data, base)
        for seed in ours.keys() & theirs.keys():
            pair = [ours[seed]["seconds"], theirs[seed]["seconds"]]
            units = [of["unit"] for of in pair] if all(of["unit"] for of in pair) else [1.0, 1.0]
            both = [max(of[kind], 1e-3) / unit for of, unit in zip(pair, units, strict=True)]
            logs.append(math.log(both[0] / both[1]))
    return number(math.exp(np.mean(logs)) if logs else math.nan, 2)


# -- what all pages say --------------------------------------------------------------------------


def origin(results: Results) -> dict[str, Any]:
    """Return counts of lines by commit and by machine, and what changed since in which methods."""
    commits: dict[str, int] = {}
    machines: dict[str, int] = {}
    for record in results.records:
        trace = record.get("trace", {})
        commit, device = trace.get("commit", "no commit"), trace.get("device", "cpu")
        commits[commit] = commits.get(commit, 0) + 1
        place = record.get("machine", "unknown") + ("" if device == "cpu" else f", {device}")
        machines[place] = machines.get(place, 0) + 1
    changed: dict[str, list[str]] = {}
    for method, parts in results.changed.items():
        for key, (before, now) in parts.items():
            changed.setdefault(f"`{key}` was {before}, is {now}", []).append(results.titles[method])
    return {
        "commits": commits,
        "machines": sorted(machines.items()),
        "changed": changed,
        "equal_since": EQUAL_SINCE,
    }


KINDS: dict[str, tuple[Callable[..., dict[str, Any]], str]] = {
    "suite": (suite_page, "suite.md"),
    "ablations": (ablations_page, "ablations.md"),
    "estimator": (estimator_page, "estimator.md"),
    "pairs": (pairs_page, "pairs.md"),
    "faces": (regions_page, "regions.md"),
    "depth": (regions_page, "regions.md"),
}
"""What fills the fields of each kind of page, and its template."""


def write_page(suite: Suite, lines: Path, out: Path, times: Path | None = None) -> Path:
    """Write the Markdown page of a results file."""
    records = read_results(lines)
    results = Results([*records, *(best_forms(records) if suite.page == "estimator" else ())])
    if suite.page in ("ablations", "estimator") and suite.reference not in results.methods:
        raise ValueError(
            f"{lines} has no run of {suite.reference}, the reference of all others: run it first"
        )
    timed = {} if times is None else finished_runs(read_records(times))
    first = results.records[0]
    fill, template = KINDS[suite.page]
    by_seeds = results.methods_by_seeds.items()
    fields = {
        "suite": suite,
        "results": results,
        "first": first,
        "expected": len(results.data) * sum(len(seeds) * len(methods) for seeds, methods in by_seeds),
        "origin": origin(results),
        "balanced_otherwise": [get_method(name).title for name in BALANCED_OTHERWISE]
        if first["recipe"].get("weights")
        else [],
        **fill(suite, results, {(data, method): line for (data, method, _), line in timed.items()}),
    }
    words = jinja2.Environment(
        loader=jinja2.FileSystemLoader(TEMPLATES),
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
        autoescape=False,
    )
    text = words.get_template(template).render(fields).rstrip("\n") + "\n"
    write_atomically(out, lambda part: part.write_text(text, encoding="utf-8"))
    return out
