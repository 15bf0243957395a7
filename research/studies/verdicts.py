"""Tables whose truth is known: what the page of `tailwise fit` says of each, and whether new rows agree.

    python research/studies/verdicts.py                # all twelve
    python research/studies/verdicts.py claims noise   # some

Each table is generated, written to files, and given to ``tailwise fit --report --json``. The printed verdict
rests on 20% of the rows. Every clear difference in it (errors and interval scores, by region and baseline)
is then looked at on 20,000 new rows of the same generator: those with the other sign there are wrong.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from typer.testing import CliRunner

from tailwise import TailRegressor
from tailwise.cli.app import app
from tailwise.report.baselines import line_up
from tailwise.report.contrasts import Standing, standings_of
from tailwise.report.scores import Seen
from tailwise.report.verdict import MIN_TAIL_ROWS

Array = np.ndarray
Rng = np.random.Generator
ROWS, NEW = 1500, 20_000


def inputs(n: int, rng: Rng) -> tuple[pd.DataFrame, Array]:
    """Return inputs, and the level that most of the tables' labels depend on. (n,)"""
    x = pd.DataFrame(rng.normal(size=(n, 4)), columns=list("abcd"))
    x["kind"] = rng.choice(["p", "q", "r"], n)
    level = 0.7 * np.sin(2 * x["a"]) + 0.5 * x["b"] * (x["kind"] == "p") + 0.3 * x["c"]
    return x, level.to_numpy()


def votes(n: int, rng: Rng) -> pd.DataFrame:
    """Whole numbers with a long tail: most have a few votes, some thousands."""
    x, level = inputs(n, rng)
    return x.assign(y=rng.poisson(np.exp(2 + 1.5 * level + rng.normal(size=n))))


def claims(n: int, rng: Rng) -> pd.DataFrame:
    """63% zeros; the others have a heavy tail, and inputs tell little of both."""
    x, level = inputs(n, rng)
    hit = rng.random(n) < 1 / (1 + np.exp(0.65 - 1.2 * level))
    return x.assign(y=np.where(hit, np.exp(6 + 0.6 * level + 1.2 * rng.normal(size=n)), 0).round(2))


def counts(n: int, rng: Rng) -> pd.DataFrame:
    """Small counts: 0 to about 10."""
    x, level = inputs(n, rng)
    return x.assign(y=rng.poisson(np.exp(0.3 + level)))


def prices(n: int, rng: Rng) -> pd.DataFrame:
    """Lognormal, and predictable."""
    x, level = inputs(n, rng)
    return x.assign(y=np.exp(4 + level + 0.2 * rng.normal(size=n)).round(2))


def delays(n: int, rng: Rng) -> pd.DataFrame:
    """Around zero with a long tail above: most arrive early, some very late."""
    x, level = inputs(n, rng)
    return x.assign(y=(-5 + 4 * rng.normal(size=n) + rng.exponential(np.exp(1.5 + 1.2 * level))).round())


def sensor(n: int, rng: Rng) -> pd.DataFrame:
    """Normal noise, three times as large for one kind of device."""
    x, level = inputs(n, rng)
    noise = np.where(x["kind"] == "r", 0.9, 0.3)
    return x.assign(y=20 + level + noise * rng.normal(size=n))


def mixture(n: int, rng: Rng) -> pd.DataFrame:
    """Two humps; inputs tell only the odds of the upper one."""
    x, level = inputs(n, rng)
    return x.assign(y=rng.normal(size=n) + 12 * (rng.random(n) < 1 / (1 + np.exp(1.5 - 2 * level))))


def noise(n: int, rng: Rng) -> pd.DataFrame:
    """Nothing can be learned: lognormal labels that no input tells anything of."""
    return inputs(n, rng)[0].assign(y=np.exp(rng.normal(size=n)))


def outliers(n: int, rng: Rng) -> pd.DataFrame:
    """A constant, and 5% outliers that no input tells anything of."""
    return inputs(n, rng)[0].assign(y=np.where(rng.random(n) < 0.05, 5 + 100 * rng.random(n), 5.0).round(1))


def leak(n: int, rng: Rng) -> pd.DataFrame:
    """Prices, and a column that is the price with tax."""
    return prices(n, rng).pipe(lambda table: table.assign(gross=(1.19 * table["y"]).round(2)))


def tiny(n: int, rng: Rng) -> pd.DataFrame:
    """Prices, but only 60 rows to learn from."""
    return prices(n if n == NEW else 60, rng)


def duplicated(n: int, rng: Rng) -> pd.DataFrame:
    """300 objects, five rows each, whose label no input but their own numbers tells."""
    if n == NEW:
        return noise(n, rng)
    return pd.concat([noise(n // 5, rng)] * 5, ignore_index=True)


MAKERS: tuple[Callable[[int, Rng], pd.DataFrame], ...] = (
    *(votes, claims, counts, prices, delays, sensor, mixture, noise, outliers, leak, tiny, duplicated),
)
KINDS = {make.__name__: make for make in MAKERS}


def clear(standings: tuple[Standing, ...]) -> dict[tuple[str, str, str], float]:
    """Return differences that are clear, ours less theirs, by baseline, region and measure."""
    return {
        (standing.rival, part.region, name): difference.value
        for standing in standings
        for part in standing.parts
        for name, difference in (("MAE", part.mae), ("RMSE", part.rmse), ("interval score", part.intervals))
        if difference.outcome != "undecided"
    }


def judged(kind: str, seed: int, folder: Path) -> str:
    """Fit a table of a kind; return what the page says, and what new rows say of that."""
    make = KINDS[kind]
    table, new = (make(n, np.random.default_rng([seed, k])) for k, n in enumerate((ROWS, NEW)))
    test = np.random.default_rng(seed).random(len(table)) < 0.2
    names = {part: folder / f"{kind}-{part}" for part in ("train.csv", "test.csv", "model.tw", "page.html")}
    train_file, test_file, model_file, page_file = names.values()
    table[~test].to_csv(train_file, index=False)
    table[test].to_csv(test_file, index=False)
    words = f"fit {train_file} --test {test_file} -t y -o {model_file} --report {page_file} --seed {seed}"
    done = CliRunner().invoke(app, [*words.split(), "--json", "--force"])
    if done.exit_code:
        raise RuntimeError(f"{kind}: {done.output}")
    model = TailRegressor.load(model_file)
    few, many = (
        line_up(model, Seen(model, rows.drop(columns="y")), rows["y"].to_numpy(float))
        for rows in (pd.read_csv(test_file), new)
    )
    said, true = (clear(standings_of(rows, MIN_TAIL_ROWS)) for rows in (few, many))
    wrong = [" ".join(where) for where, value in said.items() if value * true.get(where, value) < 0]
    shown = {s.title: [float(f"{v.mean():.4g}") for v in (s.error, s.interval_score)] for s in many.all}
    verdict = json.loads(done.stdout)["verdict"]
    notes = [line for line in done.stderr.splitlines() if line.startswith(("note", "warning"))]
    inside = f"{few.ours.inside.mean():.3f} of test and {many.ours.inside.mean():.3f} of new labels inside"
    lines = [
        f"## {kind}: {verdict['status']}",
        *notes,
        verdict["headline"],
        *(f"- {sentence}" for sentence in verdict["sentences"]),
        f"=> {verdict['advice']}",
        f"{len(said)} clear differences, wrong on new rows: {', '.join(wrong) or 'none'}",
        f"{inside}; MAE and interval score of new rows {shown}",
    ]
    return "\n".join(lines) + "\n"


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("kinds", nargs="*", default=list(KINDS))
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--keep", type=Path, help="folder for tables, models and pages")
    asked = parser.parse_args()
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as temporary:
        for kind in asked.kinds:
            print(judged(kind, asked.seed, asked.keep or Path(temporary)), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
