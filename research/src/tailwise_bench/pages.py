"""Pages of results: tables by one pivot, words by one template a kind of page."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import jinja2
import numpy as np

from tailwise.methods import get_method
from tailwise.metrics.regions import REGIONS
from tailwise.report.results import Record, finished_runs, read_records, read_results
from tailwise.writing import write_atomically
from tailwise_bench.estimators import BEST, FORMS, RARE, REFERENCE, all_estimators
from tailwise_bench.own_splits import pairs_page, regions_page
from tailwise_bench.pivot import (
    Column,
    mean_column,
    nanmean,
    number,
    p_value,
    pivot,
    plain_column,
    spread_column,
    text_column,
)
from tailwise_bench.recipe import BALANCED_OTHERWISE
from tailwise_bench.statistics import (
    HEADLINES,
    RATIOS,
    Effect,
    Figure,
    Results,
    changes,
    effect,
    p_values,
    planned,
)
from tailwise_bench.suites import Suite
from tailwise_bench.trace import EQUAL_SINCE
from tailwise_bench.variants import ablations

FOLDER = Path(__file__).parent
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


# -- a suite of methods --------------------------------------------------------------------------


def suite_page(suite: Suite, results: Results, times: Mapping[tuple[str, str], Record]) -> dict[str, Any]:
    """Ranks and errors beside a base, tests against the reference, calibration, data sets, tuning, times."""
    first = results.records[0]
    regions = (*REGIONS, "hole") if "hole" in first["metrics"]["raw"] else REGIONS
    headlines = (*HEADLINES, *(Figure("mae", region) for region in regions if region == "hole"))
    ranks = {f: results.average_ranks(f) for f in headlines}
    order = sorted(
        results.methods, key=lambda m: (math.isnan(ranks[HEADLINES[0]][m]), ranks[HEADLINES[0]][m])
    )
    reference = suite.reference if suite.reference in results.methods else results.methods[0]
    base = "vanilla" if "vanilla" in results.methods else reference
    title, ours = results.titles[base], results.titles
    tuned = {record["method"] for record in results.records if "trials" in record}
    compared = suite.planned if reference == "vir" and len(results.seeds) > 1 else ()
    families = {f: planned(results, f, reference, compared) for f in headlines}
    tested = {of.rival for family in families.values() for of in family}
    others = [method for method in order if method != reference and method not in tested]

    def seconds(method: str, data: str) -> str:
        return number(times[data, method]["seconds"]["fit"] if (data, method) in times else math.nan, 2)

    def ratio_of_times(method: str) -> float:
        seconds = [
            [times[d, m]["seconds"]["fit"] for m in (method, base) if (d, m) in times] for d in results.data
        ]
        logs = [math.log(pair[0] / pair[1]) if len(pair) == 2 else math.nan for pair in seconds]
        return math.exp(np.mean(logs))

    def explored(method: str, figure: Figure) -> str:
        return _effect(effect(results, figure, method, reference), figure)

    def rank(figure: Figure) -> Column:
        return Column(figure.name, lambda m: (number(ranks[figure][m]), ranks[figure][m]))

    relative = [
        plain_column(
            f.name,
            lambda m, f: results.relative(f, m, base),
            f,
            form=".3f" if f.metric in RATIOS else "+.3f",
            bold=True,
        )
        for f in (
            *(Figure("mae", r) for r in regions),
            *(Figure("nll", r, True) for r in regions),
            *(Figure("crps", r, True) for r in regions if r not in ("many", "medium")),
        )
    ]
    relative += [
        plain_column(f"90% coverage {f.region}", lambda m, f: nanmean(results.means(f, m)), f)
        for f in (Figure("coverage", "many", True), Figure("coverage", "few", True))
    ]
    if times:
        relative.append(text_column("time", lambda m: number(ratio_of_times(m), 2)))
    spent = _spent(results) if "budget" in first["recipe"] else []
    caption = (
        f"MAE and calibrated CRPS as shares of {title}'s (geometric means over data sets), "
        f"NLL minus {title}'s, coverage of calibrated 90% intervals"
        f"{', time of a fit beside its' if times else ''}"
    )
    return {
        "base": base,
        "reference": ours[reference],
        "verdict": [_headline(results, f, reference, ranks[f], families[f]) for f in headlines],
        "overview": [
            pivot(
                f"Average rank of {len(order)} contenders; 1 is best",
                [rank(f) for f in headlines],
                order,
                ours,
            ),
            pivot(caption, [*relative, *spent], order, ours),
        ],
        "planned": _planned(results, families, reference),
        "explored": pivot(
            f"{ours[reference]} against each other contender [95% interval]",
            [text_column(_full_name(f), explored, f) for f in headlines],
            others,
            ours,
            "other",
        )
        if others
        else "",
        "fixed": [ours[m] for m in results.methods if m not in tuned],
        "calibration": _calibration(results),
        "tables": [_data_table(results, data, order, regions) for data in results.data],
        "tuning": _tuning(results),
        "times": pivot(
            "Processor seconds of one fit, without tuning",
            [text_column(d, seconds, d) for d in results.data],
            order,
            ours,
        )
        if times
        else "",
        "timed": next(iter(times.values()), None),
    }


def _spent(results: Results) -> list[Column]:
    """Return trials and cost of each contender where it was tuned, on average over data sets."""

    def mean(method: str, unit: str) -> float:
        tuned = [r for r in results.records if r["method"] == method and r["seed"] == results.seeds[0]]
        values = [len(r.get("trials", [1])) if unit == "trials" else r["spent"][unit] for r in tuned]
        return nanmean([float(value) for value in values])

    words = {"trials": "trials", "seconds": "seconds, with tuning", "gradients": "gradients, with tuning"}
    return [text_column(head, lambda m, u: number(mean(m, u)), unit) for unit, head in words.items()]


def _headline(
    results: Results, figure: Figure, reference: str, ranks: Mapping[str, float], family: Sequence[Effect]
) -> dict[str, Any]:
    """Return the rank of the reference by one figure, the best contender, and the planned comparisons."""
    known = {method: rank for method, rank in ranks.items() if not math.isnan(rank)}
    best = min(known, key=lambda m: known[m]) if known else reference
    words = {"better": "better than", "worse": "worse than", "open": "not decided against"}
    rivals = {
        text: [results.titles[of.rival] for of in family if of.verdict == verdict]
        for verdict, text in words.items()
    }
    return {
        "figure": _full_name(figure),
        "rank": number(known.get(reference, math.nan)),
        "of": len(ranks),
        "best": results.titles[best],
        "best_rank": number(known.get(best, math.nan)),
        "rivals": [f"{text} {', '.join(names)}" for text, names in rivals.items() if names],
    }


def _full_name(figure: Figure) -> str:
    return f"{'calibrated ' if figure.calibrated else ''}{figure.name}"


def _planned(results: Results, families: Mapping[Figure, Sequence[Effect]], reference: str) -> list[str]:
    """Return effects against the planned rivals with stars where one is decided, and their p-values."""
    cells = {(figure, of.rival): of for figure, family in families.items() for of in family}
    rivals = list(dict.fromkeys(rival for _, rival in cells))
    if not rivals:
        return []

    def starred(rival: str, figure: Figure) -> str:
        of = cells[figure, rival]
        return _effect(of, figure) + ("" if of.verdict == "open" else " *")

    captions = {
        f"{results.titles[reference]} against each rival [95% interval]; * Holm p below 0.05": starred,
        "Holm p": lambda rival, figure: p_value(cells[figure, rival].adjusted),
    }
    return [
        pivot(
            caption, [text_column(_full_name(f), cell, f) for f in families], rivals, results.titles, "rival"
        )
        for caption, cell in captions.items()
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
    titles = {key: results.titles[m] + (", calibrated" if c else "") for key, (m, c) in kinds.items()}

    def mean(key: str, figure: Figure) -> float:
        method, calibrated = kinds[key]
        return nanmean(results.means(replace(figure, calibrated=calibrated), method))

    regions = ("all", "many", "few")
    columns = [
        *(plain_column(f"NLL {r}", mean, Figure("nll", r)) for r in regions),
        *(plain_column(f"90% coverage {r}", mean, Figure("coverage", r)) for r in regions),
        plain_column("ENCE", mean, Figure("ence")),
    ]
    caption = "Before and after calibration on the validation part, mean over data sets"
    return pivot(caption, columns, list(titles), titles) if titles else ""


def _data_table(results: Results, data: str, order: Sequence[str], shown: Sequence[str]) -> str:
    figures = [
        *(Figure("mae", r) for r in shown),
        Figure("nll", "all", True),
        Figure("nll", "few", True),
    ]
    figures += [Figure("ause", "all", True), Figure("coverage", "few", True)]
    record = next(r for r in results.records if r["data"] == data)
    size, regions = record["rows"], record["test_rows"]
    caption = (
        f"{data}: {size['train']} training rows of {size['table']}, {record['features']} features, "
        f"{record['bins']} bins; test rows many {regions['many']}, medium {regions['medium']}, few "
        f"{regions['few']}; mean ± standard deviation over seeds; NLL, AUSE and coverage calibrated"
    )
    methods = [method for method in order if results.runs(data, method)]
    return pivot(caption, [mean_column(results, f, data) for f in figures], methods, results.titles)


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

    columns = [
        text_column("trials", lambda m: str(len(tuned[m][0]["trials"]))),
        text_column("search space, default first", space),
        text_column("default kept", kept),
    ]
    methods = [method for method in results.methods if tuned[method]]
    caption = "Tuning: the same number of configurations for every contender"
    return pivot(caption, columns, methods, results.titles) if methods else ""


def _searched(of: Any) -> str:
    if isinstance(of, dict):
        return f"{of['default']:g} in {of['low']:g} to {of['high']:g}{' (log)' if of['log'] else ''}"
    return ", ".join(f"{v:g}" if isinstance(v, float) else str(v) for v in of)


# -- ablations -----------------------------------------------------------------------------------


def ablations_page(suite: Suite, results: Results, times: Any) -> dict[str, Any]:
    """Two tables for every group with runs of at least two variants."""
    whole, groups = suite.reference, []
    figures = [
        TESTED,
        *(Figure("mae", r) for r in REGIONS[1:]),
        *(Figure("nll", r, True) for r in ("all", "few")),
    ]
    for name, contenders in ablations().items():
        prefixes = {c.name.partition("=")[0] for c in contenders if "=" in c.name}
        stored = [m for m in results.methods if "=" in m and m.partition("=")[0] in prefixes]
        names = list(dict.fromkeys([*(c.name for c in contenders if c.name in results.methods), *stored]))
        if len(names) < 2:
            continue
        part = Results(r for r in results.records if r["method"] in names)
        tested = p_values(part, TESTED, whole)

        def by_seed(method: str, figure: Figure, part: Results = part) -> str:
            values = part.relative_by_seed(figure, method, whole)
            known = values[~np.isnan(values)]
            if not known.size:
                return "-"
            sign = "" if figure.metric in RATIOS else "+"
            return f"{known.mean():{sign}.3f}" + (f" ± {known.std(ddof=1):.3f}" if known.size > 1 else "")

        columns = [text_column(f.name, by_seed, f) for f in figures]
        columns.append(
            text_column(f"{TESTED.name}: Holm p over seeds", lambda m, t: p_value(t.get(m, math.nan)), tested)
        )
        by_data = [spread_column(part, TESTED, d, d) for d in part.data]
        group = name.removeprefix("ablation-")
        shares = pivot("As shares of, and differences from, VIR", columns, names, part.titles, "variant")
        units = pivot(f"{TESTED.name} on each data set", by_data, names, part.titles, "variant")
        groups.append({"name": group, "tables": [shares, units]})
    return {"groups": groups, "vir": get_method("vir").parts.as_options()}


# -- estimators on natural splits ----------------------------------------------------------------


def best_forms(records: Sequence[Record]) -> list[Record]:
    """Return a line for each table and seed: that of CatBoost's form with the lowest held-out MAE.

    Its time is that of all forms.
    """
    forms: dict[tuple[str, int], list[Record]] = {}
    for record in records:
        if record["method"] in FORMS and "valid" in record:
            forms.setdefault((record["data"], record["seed"]), []).append(record)
    found = []
    for several in forms.values():
        if len(several) == len(FORMS):
            best = min(several, key=lambda r: float(r["valid"]["mae"]))
            fitted = sum(r["seconds"]["fit"] for r in several)
            found.append(
                {**best, "method": BEST, "title": "CatBoost, best form", "form": best["title"]}
                | {"seconds": {**best["seconds"], "fit": fitted}}
            )
    return found


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
    return float(np.mean(ratios)) if ratios else math.nan


def estimator_page(suite: Suite, results: Results, times: Any) -> dict[str, Any]:
    """Every estimator divided by the reference, coverage of the rarest labels, errors and times by table."""
    known = [estimator.name for estimator in all_estimators()]
    known.insert(1, BEST)
    methods = sorted(set(results.methods) & set(known), key=known.index)
    with_rare = [line for m in methods for line in (m, m + RARE) if line in results.methods]
    base = suite.reference
    low, high = GOOD_COVERAGE
    rare = Figure("coverage", "rare")

    def by_seed(figure: Figure, method: str) -> np.ndarray:
        return np.ones(1) if method == base else np.exp(changes(results, figure, method, base, "seeds"))

    def ratio(figure: Figure) -> Column:
        def cell(method: str) -> tuple[str, float]:
            values = by_seed(figure, method)
            if not values.size:
                return "-", math.nan
            spread = f" ± {values.std(ddof=1):.3f}" if values.size > 1 else ""
            return f"{values.mean():.3f}{spread}", float(values.mean())

        return Column(figure.name, cell)

    def ahead(figure: Figure, method: str) -> str:
        by_table = changes(results, figure, method, base, "data")
        return "-" if method == base else f"{int((by_table < 0).sum())}/{by_table.size}"

    def width(method: str, labels: str) -> float:
        found = changes(results, Figure("width", labels), method, base, "data")
        return 1.0 if method == base else math.exp(found.mean()) if found.size else math.nan

    def seconds(data: str, method: str) -> float:
        return nanmean([run["seconds"]["fit"] for run in results.runs(data, method).values()])

    def within(method: str) -> str:
        means = [mean for mean in results.means(rare, method) if not math.isnan(mean)]
        return f"{sum(low <= mean <= high for mean in means)}/{len(means)}"

    def equal(method: str) -> str:
        by_table = [of for d in results.data if not math.isnan(of := equal_width(results, d, method))]
        if not by_table:
            return "-"
        mean = np.exp(np.mean(np.log(by_table)))
        return f"{mean:.3f} ({min(by_table):.3f} to {max(by_table):.3f})"

    tables = {d: Results(r for r in results.records if r["data"] == d) for d in results.data}

    def against(rival: str) -> dict[str, Any]:
        """Compare TailRegressor with a rival: ratios, tables ahead, and tables behind beyond chance."""
        found = {f: effect(results, f, rival, "tail") for f in NATURAL}
        known = [f for f in NATURAL if not math.isnan(found[f].change)]
        places = []
        for figure in (f for f in (NATURAL[0], NATURAL[5]) if f in known):
            each = {d: effect(tables[d], figure, rival, "tail") for d in results.data}
            by_data = {d: of for d, of in each.items() if not math.isnan(of.change)}
            worse = [f"{d} {_effect(of, figure)}" for d, of in by_data.items() if of.low > 0]
            places.append(
                f"Its {figure.name} is lower on {sum(of.change < 0 for of in by_data.values())} of "
                f"{len(by_data)} tables, higher beyond chance on {', '.join(worse) or 'none'}"
            )
        ratios = [f"{f.name} {_effect(found[f], f)}" for f in known]
        return {"title": ours[rival], "ratios": ratios, "places": places}

    overview = [
        *(ratio(f) for f in NATURAL),
        *(
            text_column(f"{f.name}: tables ahead", lambda m, f: ahead(f, m), f)
            for f in (NATURAL[0], NATURAL[1], NATURAL[4])
        ),
        *(
            text_column(f"{k} time", lambda m, k: number(_time_ratio(results, k, m, base), 2), k)
            for k in ("fit", "predict")
        ),
        text_column("runs", lambda m: str(sum(r["method"] == m for r in results.records))),
    ]
    coverage = [
        *(plain_column(d, lambda m, d: results.mean_std(rare, d, m)[0], d) for d in results.data),
        text_column(f"{low:g} to {high:g}", within),
        plain_column("all labels", lambda m: nanmean(results.means(Figure("coverage"), m))),
        plain_column("width rare", lambda m: width(m, "rare")),
        plain_column("width all", lambda m: width(m, "all")),
        *(
            plain_column(f.name, lambda m, f: results.relative(f, m, base), f)
            for f in (NATURAL[5], Figure("interval_score", "rare"))
        ),
        text_column("width / CV+'s at equal coverage of rare labels", equal),
    ]
    ours, title = results.titles, results.titles[base]
    shown = [m for m in dict.fromkeys(("tail", base, *RIVALS)) if m in methods]
    return {
        "base": title,
        "estimators": len(set(methods) - {BEST}),
        "rivals": [against(m) for m in shown if m != "tail"] if "tail" in methods else [],
        "forms": {
            data: ", ".join(
                run["form"].removeprefix("CatBoost, ") for run in results.runs(data, BEST).values()
            )
            for data in results.data
            if results.runs(data, BEST)
        },
        "covered": [
            {"title": ours[m], **{r: results.means(Figure("coverage", r), m) for r in ("all", "rare")}}
            for m in with_rare
            if m.removesuffix(RARE) in shown
        ],
        "overview": pivot(
            f"Divided by {title}'s (geometric mean over tables; mean ± standard deviation over seeds)",
            overview,
            methods,
            ours,
            "estimator",
        ),
        "coverage": pivot(
            "Coverage of 90% intervals for the rarest labels by table (mean over seeds), tables in limits, "
            "coverage of all labels; widths for the rarest and for all labels, interval scores for all and "
            f"for the rarest labels, divided by {title}'s; widths divided by those of CV+ with as many of "
            "the rarest labels inside, with least and most by table",
            coverage,
            with_rare,
            ours,
            "estimator",
        ),
        "tables": [
            pivot(
                f"{f.name}, mean ± standard deviation over seeds",
                [mean_column(results, f, d, d) for d in results.data],
                methods,
                ours,
                "estimator",
            )
            for f in NATURAL
        ],
        "times": pivot(
            "Processor seconds of a fit on one thread",
            [text_column(d, lambda m, d: number(seconds(d, m), 2), d) for d in results.data],
            methods,
            ours,
            "estimator",
        ),
    }


def _time_ratio(results: Results, kind: str, method: str, base: str) -> float:
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
    return math.exp(np.mean(logs)) if logs else math.nan


# -- what all pages say --------------------------------------------------------------------------


def origin(results: Results) -> dict[str, Any]:
    """Return counts of lines by state of the code and by machine, and what changed since in which methods."""
    codes: dict[str, list[str]] = {}
    places: dict[str, int] = {}
    for record in results.records:
        trace = record.get("trace", {})
        codes.setdefault(trace.get("code", "no record"), []).append(trace.get("commit", "no commit"))
        device = trace.get("device", "cpu")
        place = f"{record.get('machine', 'unknown')}{'' if device == 'cpu' else f', {device}'}"
        places[place] = places.get(place, 0) + 1
    changed: dict[str, list[str]] = {}
    for method, parts in results.changed.items():
        for key, (before, now) in parts.items():
            changed.setdefault(f"`{key}` was {before}, is {now}", []).append(results.titles[method])
    return {
        "codes": [(code, list(dict.fromkeys(commits)), len(commits)) for code, commits in codes.items()],
        "machines": sorted(places.items()),
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
    fields = {
        "suite": suite,
        "results": results,
        "first": first,
        "expected": len(results.data)
        * sum(len(seeds) * len(methods) for seeds, methods in results.methods_by_seeds.items()),
        "origin": origin(results),
        "balanced_otherwise": [get_method(name).title for name in BALANCED_OTHERWISE]
        if first["recipe"].get("weights")
        else [],
        **fill(suite, results, {(data, method): line for (data, method, _), line in timed.items()}),
    }
    words = jinja2.Environment(
        loader=jinja2.FileSystemLoader(FOLDER / "templates"),
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
        autoescape=False,
    )
    text = words.get_template(template).render(fields).rstrip("\n") + "\n"
    write_atomically(out, lambda part: part.write_text(text, encoding="utf-8"))
    return out
