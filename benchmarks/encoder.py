"""What VIR's encoder adds, and which default of VIR a rule would choose, on the development tables.

    python benchmarks/encoder.py --write

Variants of VIR differ in a few options. Each is trained on the tables of the suite `development` with at most
1,000 training rows and that suite's recipe. Nothing is tuned. The validation part stops training and
calibrates: factors on the predicted spread minimise the NLL of its rows, weighted as the training labels are.
All variants are calibrated alike. A point prediction counts as a Gaussian of constant variance. Test labels
are read once, to score. `balanced` is the mean over label bins. `natural` weights each bin by its share of
the training labels. `few` has the bins with fewer than 20 training rows.

The rule, written before the runs: VIR's default is the variant with the lowest balanced CRPS among those
whose natural MAE is at most 1% above Vanilla's. Both are geometric means over tables of the ratio to Vanilla,
averaged over seeds. One variant was added after the results of the first seed: emphasis 0.25, because the
limit of the rule falls between 0 and 0.5. At the same time one of the tested pairs was exchanged:
variance-only latents are compared with plain features instead of with VIR.
"""

from __future__ import annotations

import math
import multiprocessing
import sys
from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from script_options import BESIDE, script_parser, show
from tailwise._version import __version__
from tailwise.benchmark import Source, get_suite
from tailwise.benchmark.data.problems import Problem
from tailwise.benchmark.data.recipe import Recipe
from tailwise.benchmark.pages.markup import Table, best_cells, p_value
from tailwise.benchmark.pages.origin import describe_origin
from tailwise.benchmark.pages.statistics import Comparison, Figure, Results, changes, compare, holm
from tailwise.benchmark.run.contenders import Contender, Outcome, from_registry
from tailwise.benchmark.run.results import Record, ResultsFile, check_comparable, finished_runs
from tailwise.benchmark.run.trace import machine, unchanged
from tailwise.core.distributions import Distribution
from tailwise.core.label_prior import LabelDensity, emphasis
from tailwise.core.labels import LabelBins
from tailwise.core.metrics import by_bin, evaluate
from tailwise.uncertainty.scaling import balanced_weights, fit_scaling

DOCS = Path(__file__).parents[1] / "docs" / "results"
REFERENCE = "vanilla"
TOLERANCE = 0.01
"""The rule accepts a natural MAE this much above Vanilla's."""
LATER = "vir-dial[emphasis=0.25]"
"""The variant that was added after the results of the first seed."""
ROWS = 1000
LEVEL = 0.05


# -- variants ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Variant:
    """A registered method with other options, and the emphases (VIR:dial) that its predictions get."""

    method: str
    name: str
    title: str
    options: Mapping[str, Any] = field(default_factory=dict)
    emphases: tuple[float, ...] = (0.0,)

    @property
    def contender(self) -> Contender:
        return from_registry(self.method, label=self.name, title=self.title, tuned=False, **self.options)

    def lines(self) -> dict[float, tuple[str, str]]:
        """Return name and title of the results line of each emphasis."""
        return {
            t: (f"{self.name}[emphasis={t:g}]", f"{self.title}, emphasis {t:g}")
            if len(self.emphases) > 1
            else (self.name, self.title)
            for t in self.emphases
        }


def _vir(word: str, title: str, **options: Any) -> Variant:
    return Variant("vir", f"vir[{word}]", f"VIR {title}", options)


LATENTS = {"latent": "gaussian", "kl": 2.4e-5}
PLAIN = {"latent": "point", "kl": 0.0}
VARIANTS = (
    Variant("vanilla", "vanilla", "Vanilla"),
    Variant("vir", "vir", "VIR (default)"),
    _vir("smoothing=none", "without smoothing", smoothing=None),
    _vir("latent=point", "without Gaussian latents", **PLAIN),
    _vir("encoder=none", "without either", smoothing=None, **PLAIN),
    _vir("latent_mean=features", "with variance-only latents", latent_mean="features"),
    _vir("shrink=5", "with shrink 5", **{"smoothing.shrink": 5.0}),
    _vir("exact", "with exact statistics", **{"smoothing.exact": True}),
    _vir("recolor", "recolouring at inference too", recolor=True),
    _vir("recolor_predicted", "recolouring by predictions only", recolor=True, recolor_predicted=True),
    _vir("below=20", "smoothing bins below 20 rows only", **{"smoothing.below": 20}),
    _vir("variance only", "with variance-only latents, not smoothed", latent_mean="features", smoothing=None),
    _vir("kl=0.001", "with a KL weight of 0.001", kl=1e-3),
    _vir("power=0.25", "with weights of power 0.25", **{"weights.power": 0.25}),
    Variant("vir-predictor", "vir-predictor", "VIR, predictor only"),
    Variant("vir-predictor", "vir-predictor[power=0.25]", "Predictor, power 0.25", {"weights.power": 0.25}),
    Variant("vir-predictor", "vir-predictor[power=0]", "Predictor, power 0", {"weights.power": 0.0}),
    Variant("balanced-nll", "balanced-nll", "Balanced NLL"),
    Variant("balanced-nll", "balanced-nll[latents]", "Balanced NLL, Gaussian latents", LATENTS),
    Variant(
        "balanced-nll",
        "balanced-nll[latents,smoothing]",
        "Balanced NLL, latents and smoothing (shrink 5)",
        {**LATENTS, "smoothing.bandwidth": 0.64, "smoothing.shrink": 5.0},
    ),
    Variant("vir-dial", "vir-dial", "VIR with a dial", emphases=(0.0, 0.25, 0.5, 1.0)),
)
PAIRS = (
    ("smoothing of Gaussian latents", "vir", "vir[smoothing=none]"),
    ("smoothing of plain features", "vir[latent=point]", "vir[encoder=none]"),
    ("Gaussian latents, smoothed", "vir", "vir[latent=point]"),
    ("Gaussian latents, not smoothed", "vir[smoothing=none]", "vir[encoder=none]"),
    ("the whole encoder", "vir", "vir[encoder=none]"),
    ("variance-only latents, smoothed", "vir[latent_mean=features]", "vir[latent=point]"),
    ("shrink 5", "vir[shrink=5]", "vir"),
    ("exact statistics", "vir[exact]", "vir"),
    ("recolouring at inference too", "vir[recolor]", "vir"),
    ("recolouring by predictions only", "vir[recolor_predicted]", "vir"),
    ("smoothing bins below 20 rows only", "vir[below=20]", "vir"),
    ("power 0.25 in VIR", "vir[power=0.25]", "vir"),
    ("power 0.25 in the predictor", "vir-predictor[power=0.25]", "vir-predictor"),
    ("power 0 in the predictor", "vir-predictor[power=0]", "vir-predictor"),
    ("variance-only latents, not smoothed", "vir[variance only]", "vir[encoder=none]"),
    ("a KL weight of 0.001", "vir[kl=0.001]", "vir"),
    ("Gaussian latents in Balanced NLL", "balanced-nll[latents]", "balanced-nll"),
    ("smoothing (shrink 5) in Balanced NLL", "balanced-nll[latents,smoothing]", "balanced-nll[latents]"),
)
"""What is added or changed, the variant that has it, and the one that does not."""
WHOLE = PAIRS[4]
SMOOTHING = (*PAIRS[:2], *PAIRS[6:11], PAIRS[-1])
LATENT = (*PAIRS[2:4], PAIRS[5], PAIRS[-4], PAIRS[-2])
"""The pair that differs in the whole encoder, and those that differ in one of its parts."""


# -- scores --------------------------------------------------------------------------------------


def natural_weights(y: np.ndarray, bins: LabelBins) -> np.ndarray:
    """Return one weight per label, with mean 1, that gives each bin its share of the training labels. (n,)

    >>> bins = LabelBins.from_labels([0, 0, 0, 1])
    >>> natural_weights(np.array([0.0, 1.0, 1.0]), bins)
    array([2.25 , 0.375, 0.375])
    """
    weights = balanced_weights(y, bins) * bins.counts[bins.index(y)]
    return np.asarray(weights / weights.mean())


def scores_of(prediction: Distribution, problem: Problem) -> dict[str, float | None]:
    """Return MAE and CRPS, balanced and natural, and the MAE of few-shot bins; None without such rows."""
    table = by_bin(prediction, problem.y_test, problem.bins, ("mae", "crps"))
    many, few = problem.shots
    found = evaluate(prediction, problem.y_test, problem.bins, ["few/mae"], many=many, few=few)
    for metric in ("mae", "crps"):
        found[f"balanced/{metric}"] = float(table[metric].mean())
        found[f"natural/{metric}"] = float(np.average(table[metric], weights=table["train"]))
    return {name: float(f"{v:.6g}") if math.isfinite(v) else None for name, v in found.items()}


def records_of(variant: Variant, problem: Problem, recipe: Recipe) -> list[Record]:
    """Fit a variant, calibrate it on the validation part, and return a results line per emphasis."""
    trace = variant.contender.trace(recipe)
    outcome = variant.contender.fit(problem, {}, recipe)
    natural, balanced = (
        _calibrated(outcome, problem, weigh(problem.y_valid, problem.bins))
        for weigh in (natural_weights, balanced_weights)
    )
    density = LabelDensity.from_bins(problem.bins)
    about = {
        "suite": "encoder",
        "data": problem.name,
        "seed": problem.seed,
        "version": __version__,
        "machine": machine(),
        "trace": trace,
        "recipe": recipe.describe(),
        "fixed": dict(variant.options),
        **problem.describe(),
        "epochs": outcome.epochs,
        "seconds": round(outcome.fit_seconds, 3),
    }
    records = []
    for t, (name, title) in variant.lines().items():
        tilt = emphasis(density, t)
        calibrated, other = (tilt.apply(p) if t else p for p in (natural, balanced))
        scores = scores_of(calibrated, problem)
        scores["balanced/crps, balanced calibration"] = scores_of(other, problem)["balanced/crps"]
        records.append({**about, "method": name, "title": title, "scores": scores})
    return records


def _calibrated(outcome: Outcome, problem: Problem, weights: np.ndarray) -> Distribution:
    return fit_scaling(outcome.valid, problem.y_valid, weights=weights).apply(outcome.test)


def trained(name: str, seed: int, variants: Sequence[Variant]) -> list[Record]:
    """Train variants on one table; return their results lines."""
    torch.set_num_threads(1)
    suite = get_suite("development")
    source = next(s for s in suite.sources if s.name == name)
    assert isinstance(source, Source)
    problem = source.problem(seed, max_rows=ROWS, suite="development")
    return [record for variant in variants for record in records_of(variant, problem, suite.recipe)]


def run(path: Path, seeds: Sequence[int], workers: int) -> None:
    """Train what the file lacks; the lines of a table and seed are appended together."""
    suite, results = get_suite("development"), ResultsFile(path)
    check_comparable(results.records, suite.recipe, path, [v.contender for v in VARIANTS], "encoder")
    done = finished_runs(unchanged(results.records))
    jobs = []
    for seed in seeds:
        for name in (source.name for source in suite.sources):
            missing = [v for v in VARIANTS if any((name, n, seed) not in done for n, _ in v.lines().values())]
            jobs += [(name, seed, missing)] if missing else []
    with ProcessPoolExecutor(workers, mp_context=multiprocessing.get_context("spawn")) as pool:
        for future in as_completed([pool.submit(trained, *job) for job in jobs]):
            new = [r for r in future.result() if (r["data"], r["method"], r["seed"]) not in done]
            for record in new:
                results.append(record)
            print("finished", new[0]["data"], new[0]["seed"], file=sys.stderr, flush=True)


# -- the page ------------------------------------------------------------------------------------


class Score(Figure):
    """A score of these lines; tables are compared by its ratios."""

    def of(self, record: Record) -> float:
        """Return its value in a results line; NaN where there is none."""
        value = record["scores"][f"{self.region}/{self.metric}"]
        return math.nan if value is None else float(value)

    def change(self, other: float, reference: float) -> float:
        """Return the logarithm of the ratio."""
        return math.log(other / reference)


BALANCED_CRPS, NATURAL_MAE, FEW_MAE = Score("crps", "balanced"), Score("mae", "natural"), Score("mae", "few")
RECALIBRATED = Score("crps, balanced calibration", "balanced")
FIGURES = {
    "balanced MAE": Score("mae", "balanced"),
    "balanced CRPS": BALANCED_CRPS,
    "natural MAE": NATURAL_MAE,
    "natural CRPS": Score("crps", "natural"),
    "few-shot MAE": FEW_MAE,
    "balanced CRPS, balanced calibration": RECALIBRATED,
}
TESTED = {"balanced CRPS": BALANCED_CRPS, "natural MAE": NATURAL_MAE, "few-shot MAE": FEW_MAE}
VERDICTS = {"better": "Helps", "worse": "Costs", "open": "Cannot be told from chance"}


def ratios(results: Results, figure: Figure, method: str) -> np.ndarray:
    """Return the geometric mean over tables of the ratio to Vanilla, for each seed. (S,)"""
    return np.exp(changes(results, figure, method, REFERENCE, "seeds"))


def admissible(results: Results) -> list[str]:
    """Return the variants whose natural MAE is at most `TOLERANCE` above Vanilla's."""
    limit = 1 + TOLERANCE
    others = [m for m in results.methods if m != REFERENCE]
    return [m for m in others if ratios(results, NATURAL_MAE, m).mean() <= limit]


def ranked(results: Results, figure: Figure = BALANCED_CRPS) -> list[str]:
    """Return the admissible variants; the rule chooses the first."""
    return sorted(admissible(results), key=lambda m: float(ratios(results, figure, m).mean()))


def compared_pairs(
    results: Results, figure: Figure, pairs: Sequence[tuple[str, str, str]]
) -> list[Comparison]:
    """Compare each variant with its counterpart: t-tests over tables with Holm's correction."""
    found = []
    for _, variant, without in pairs:
        both = Results(r for r in results.records if r["method"] in (variant, without))
        found.extend(compare(both, figure, without, over="data"))
    adjusted = holm([c.p for c in found])
    return [replace(c, adjusted=p) for c, p in zip(found, adjusted, strict=True)]


def percent(change: float) -> str:
    """Format the logarithm of a ratio as a change in percent.

    >>> percent(math.log(1.02)), percent(math.log(0.95))
    ('+2.0', '-5.0')
    """
    return f"{100 * math.expm1(change):+.1f}"


def _change(found: Comparison) -> str:
    return f"{percent(found.change)} ± {100 * found.error:.1f}%"


def figures_table(results: Results) -> Table:
    """Return one row per variant: ratios to Vanilla."""
    rows, columns = [], []
    for figure in FIGURES.values():
        columns.append([ratios(results, figure, m) for m in results.methods])
    for place, method in enumerate(results.methods):
        values = [column[place] for column in columns]
        cells = [f"{v.mean():.3f} ± {v.std(ddof=1):.3f}" if v.size > 1 else f"{v.mean():.3f}" for v in values]
        epochs = np.mean([r["epochs"] for r in results.records if r["method"] == method])
        rows.append([results.titles[method], *cells, f"{epochs:.0f}"])
    best = best_cells([v.mean() for v in column] for column in columns)
    caption = "Divided by Vanilla's (geometric mean over tables; mean ± standard deviation over seeds)"
    return Table(caption, ["variant", *FIGURES, "best epoch"], rows, best)


def pairs_table(results: Results) -> Table:
    """Return one row per change of the options: its effect on three figures."""
    tested = [compared_pairs(results, figure, PAIRS) for figure in TESTED.values()]
    rows = [
        [
            what,
            *(
                f"{_change(c[place])}, {c[place].better} of {c[place].units}, p {p_value(c[place].adjusted)}"
                for c in tested
            ),
        ]
        for place, (what, _, _) in enumerate(PAIRS)
    ]
    caption = (
        "Change ± standard error over tables (below 0 is better), number of tables where it is better, and p "
        "by a paired t-test over tables with Holm's correction"
    )
    return Table(caption, ["what is added or changed", *TESTED], rows)


def frontier(results: Results) -> list[str]:
    """Return the variants that no other beats in both balanced CRPS and natural MAE, by natural MAE."""
    place = {
        m: tuple(float(ratios(results, figure, m).mean()) for figure in (NATURAL_MAE, BALANCED_CRPS))
        for m in results.methods
    }
    kept = [m for m, (mae, crps) in place.items() if not any(a < mae and b < crps for a, b in place.values())]
    return sorted(kept, key=place.__getitem__)


def conclusions(results: Results) -> str:
    """Return in words what the figures show."""
    tested = {
        name: dict(zip(PAIRS, compared_pairs(results, figure, PAIRS), strict=True))
        for name, figure in TESTED.items()
    }
    lines = []
    for name, found in tested.items():
        said: dict[str, list[str]] = {}
        for pair, comparison in found.items():
            said.setdefault(comparison.verdict(LEVEL), []).append(pair[0])
        words = [f"{VERDICTS[v]}: {'; '.join(said[v])}." for v in ("better", "worse") if v in said]
        words.append(f"{VERDICTS['open']}: {'the others' if words else 'everything'}.")
        lines.append(f"- **{name[0].upper()}{name[1:]}.** {' '.join(words)}")
    whole = {name: found[WHOLE] for name, found in tested.items()}
    effects = ", ".join(
        f"{n} by {_change(c)} (better on {c.better} of {c.units} tables)" for n, c in whole.items()
    )
    gains = [name for name, c in whole.items() if c.verdict(LEVEL) == "better"]
    losses = [name for name, c in whole.items() if c.verdict(LEVEL) == "worse"]
    unsure = [f"{p_value(c.p)} for {name}" for name, c in whole.items() if c.p < LEVEL <= c.adjusted]
    lines += [
        "- **Does the encoder earn its place?** Gaussian latents and smoothing together, with all other "
        f"options of VIR unchanged, change {effects}. "
        + (f"They improve {' and '.join(gains)}" if gains else "They improve no figure beyond chance")
        + (f", and they cost {' and '.join(losses)}." if losses else ".")
        + (f" Before Holm's correction, p is {' and '.join(unsure)}." if unsure else ""),
        _range_in_words("Smoothing changes", SMOOTHING, tested),
        _range_in_words("Gaussian latents change", LATENT, tested),
    ]
    names = "; ".join(results.titles[m] for m in frontier(results))
    lines.append(
        "- **The exchange of common for rare.** No other variant is better in both natural MAE and balanced "
        f"CRPS than these, from the lowest natural MAE to the highest: {names}."
    )
    return "\n".join([*lines, *_rule_in_words(results)])


def _range_in_words(
    words: str,
    pairs: Sequence[tuple[str, str, str]],
    tested: Mapping[str, Mapping[tuple[str, str, str], Comparison]],
) -> str:
    """Return the smallest and largest effect of a part over its comparisons."""
    ranges = []
    for name, found in tested.items():
        effects = sorted(found[pair].change for pair in pairs)
        ranges.append(f"{name} by {percent(effects[0])} to {percent(effects[-1])}%")
    return f"- **{words}** {', '.join(ranges)}, in {len(pairs)} comparisons of the table above."


def _rule_in_words(results: Results) -> list[str]:
    def named(method: str, figure: Figure = BALANCED_CRPS) -> str:
        return f"{results.titles[method]} ({ratios(results, figure, method).mean():.3f})"

    default = ratios(results, NATURAL_MAE, "vir").mean()
    lines = [
        f"- **Today's default** has {default:.3f} times Vanilla's natural MAE. The rule "
        + ("accepts" if "vir" in admissible(results) else "does not accept")
        + " it."
    ]
    order = ranked(results)
    if not order:
        return [*lines, "- **The rule chooses nothing**: every variant has a natural MAE above the limit."]
    text = f"- **The rule would choose {named(order[0])}.** "
    if len(order) > 1:
        pair = ("first against second", order[0], order[1])
        (found,) = compared_pairs(results, BALANCED_CRPS, [pair])
        rest = ", ".join(named(m) for m in order[1:])
        text += (
            f"The other variants that it accepts, by balanced CRPS: {rest}. Between the first two the "
            f"difference is {_change(found)} (p {p_value(found.p)}). "
        )
    if order[0] == LATER and len(order) > 1:
        text += f"The first was added later; without it the rule would choose {named(order[1])}. "
    if ratios(results, BALANCED_CRPS, order[0]).mean() >= 1:
        text += "It has no lower balanced CRPS than Vanilla: what helps rare labels costs common ones more. "
    other = ranked(results, RECALIBRATED)[0]
    text += "If the validation rows are weighted equally by label bin in the calibration, it would choose "
    text += "the same." if other == order[0] else f"{named(other, RECALIBRATED)}."
    return [*lines, text]


LIMITS = """\
- **The registered default of `vir` stays**, with the encoder of the paper: on faces it is better than its
  predictor alone ([utkface.md](utkface.md)), behind a BiLSTM it is worse ([stsb.md](stsb.md)), and no variant
  is best on all kinds of data. The default of `TailRegressor` is `vir-dial`, which sets the encoder aside: it
  has neither Gaussian latents nor smoothing.
- **Limits.** The defaults of VIR and of its predictor were chosen on validation rows of these tables
  ([defaults.md](defaults.md)); those of the dial were not. All runs use one small network (a plain MLP) and
  at most 1,000 training rows."""


def page(records: Sequence[Record]) -> str:
    """Return the page of these results lines."""
    order = [name for variant in VARIANTS for name, _ in variant.lines().values()]
    results = Results(sorted(finished_runs(records).values(), key=lambda r: order.index(r["method"])))
    seeds = 1 + max(r["seed"] for r in results.records)
    title, _, _, _, *about = (__doc__ or "").strip().splitlines()
    return "\n".join(
        [
            f"# {title.rstrip('.')}\n",
            f"Written by `python benchmarks/encoder.py --seeds {seeds} --write`; do not edit.\n",
            *about,
            f"\nTables: {', '.join(results.data)}. Seeds: {seeds}.\n",
            " ".join(describe_origin(results.records, REFERENCE)) + "\n",
            "## Figures\n",
            figures_table(results).markdown(),
            "`best epoch` is the mean epoch of the model that was kept. The last column of ratios has the "
            "same predictions, calibrated with validation rows weighted equally by label bin.\n",
            "## The effect of each part\n",
            pairs_table(results).markdown(),
            f"## What it shows\n\n{conclusions(results)}\n{LIMITS}\n",
        ]
    )


def main() -> int:
    """Run what is missing, print the page and write it if asked to."""
    options = script_parser(
        __doc__, seeds=3, workers=1, results=DOCS / "encoder.jsonl", write=BESIDE
    ).parse_args()
    run(options.results, range(options.seeds), options.workers)
    text = page(ResultsFile(options.results).records)
    show(text, options)
    return 0


if __name__ == "__main__":
    sys.exit(main())
