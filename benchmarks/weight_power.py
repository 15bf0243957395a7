"""Errors of VIR by the power of the importance weights: the table of docs/metrics.md.

VIR is trained on abalone with each power and tested on a random quarter of the rows. Mean and standard
deviation are over seeds, which affect the split and the network.

    python benchmarks/weight_power.py [--seeds 5] [--epochs 20] [--write]

Finished runs are kept in docs/results/weight_power.jsonl and not repeated. `--write` replaces the table in
docs/metrics.md.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from sklearn.model_selection import train_test_split

from script_options import script_parser
from tailwise import TailRegressor
from tailwise.benchmark.run.results import Record, ResultsFile
from tailwise.benchmark.run.trace import ESTIMATOR, machine, trace_of, unchanged
from tailwise.data import load_abalone
from tailwise.methods import get_method
from tailwise.metrics import evaluate

DOCS = Path(__file__).parents[1] / "docs"
POWERS = (0.0, 0.25, 0.5, 0.75, 1.0)
NOTES = {0.0: " (no weights)", get_method("vir").parts.weights.power: " (VIR's default)"}
PLACE = re.compile(r"^\| `power` \|.*\n(?:\|.*\n)+", re.M)
FIGURES = ("mse", "many/mae", "medium/mae", "few/mae", "balanced_mae")


def run(power: float, seed: int, epochs: int) -> Record:
    """Train one model and return a results line with its test errors."""
    parameters = {
        "method": "vir",
        "method_options": {"weights.power": power},
        "base": None,
        "folds": 1,
        "emphasis": 0,
        "monitor": "balanced_mae",
        "epochs": epochs,
    }
    trace = trace_of(ESTIMATOR, parameters)
    table = load_abalone()
    rings = table.pop("Rings")
    x, x_test, y, y_test = train_test_split(table, rings, random_state=seed)
    model = TailRegressor(**parameters, random_state=seed).fit(x, y)
    found = evaluate(
        model.predict_distribution(x_test), y_test, model.bins_, FIGURES, many=model.many, few=model.few
    )
    scores = {name: float(f"{found[name]:.6g}") for name in FIGURES}
    about = {"machine": machine(), "trace": trace}
    return {"power": power, "seed": seed, "epochs": epochs, "scores": scores, **about}


def table(lines: Sequence[Record]) -> str:
    """Return the table; the best mean of a column is bold."""
    runs = {
        p: np.array([[r["scores"][f] for f in FIGURES] for r in lines if r["power"] == p]) for p in POWERS
    }
    best = np.argmin([of.mean(0) for of in runs.values()], axis=0)
    head = "| `power` | MSE | many/MAE | medium/MAE | few/MAE | balanced MAE |\n|---|---|---|---|---|---|\n"
    rows = []
    for place, (power, of) in enumerate(runs.items()):
        cells = [f"{m:.2f} ± {s:.2f}" for m, s in zip(of.mean(0), of.std(0, ddof=1), strict=True)]
        marked = [f"**{cell}**" if best[c] == place else cell for c, cell in enumerate(cells)]
        rows.append(f"| {power:g}{NOTES.get(power, '')} | {' | '.join(marked)} |\n")
    return head + "".join(rows)


def main() -> None:
    """Run what is missing and print the table."""
    parser = script_parser(__doc__, seeds=5, write="replace the table in docs/metrics.md")
    parser.add_argument("--epochs", type=int, default=20)
    options = parser.parse_args()
    torch.set_num_threads(1)
    file = ResultsFile(DOCS / "results" / "weight_power.jsonl")
    done = {(r["power"], r["seed"]): r for r in unchanged(file.records) if r["epochs"] == options.epochs}
    for power in POWERS:
        for seed in range(options.seeds):
            if (power, seed) not in done:
                done[power, seed] = run(power, seed, options.epochs)
                file.append(done[power, seed])
    text = table([r for (_, seed), r in done.items() if seed < options.seeds])
    print(text)
    if options.write:
        page = DOCS / "metrics.md"
        whole = page.read_text(encoding="utf-8")
        page.write_text(PLACE.sub(lambda _: text, whole), encoding="utf-8")


if __name__ == "__main__":
    main()
