"""What families of networks predict of held-out and of new rows, for `pools.py` to pool in every way.

    python research/studies/families.py --out families --seeds 3 --jobs 14

For each development table (natural splits, at most 2,000 training rows) and seed, the base and the networks
of each family are trained on the same five folds. The files have predictions before calibration, so that no
pool needs training. Files that exist are kept. The page is research/results/networks.md.
"""

from __future__ import annotations

import argparse
import os
import time
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")
import numpy as np
import pandas as pd
import torch

from tailwise.distributions.members import NIG, Distribution
from tailwise.distributions.truncation import Bounds
from tailwise.estimator import TailRegressor
from tailwise.labels.support import LabelSupport
from tailwise.model.base import GivenBase, NoBase, fit_base
from tailwise.model.fit import Rows, Training, _trained, calibration_recipe, labels_of_targets
from tailwise.model.model import beside_features, latent_offset, network_prediction
from tailwise.model.split import Split
from tailwise.model.transforms import bins_of, candidates, chosen_transforms
from tailwise.tables.inputs import take_rows
from tailwise_bench.suites import get_suite

FAMILIES: dict[str, dict[str, Any]] = {
    "around": {},
    "alone": {"backbone": "realmlp"},
    "alone-short": {"backbone": "realmlp", "epochs": 50},
    "alone-big": {"backbone": "realmlp", "batch": 2},
    "around-realmlp": {"backbone": "realmlp"},
    "alone-slow": {"backbone": "realmlp", "lr": 1e-3},
    "alone-long": {"backbone": "realmlp", "epochs": 300},
}
"""Families by name, with the settings that they change; those called alone... do not see the base."""
MAIN = ("around", "alone")
"""Families for every seed; the others are for the first one."""
LONGEST = ("ames", "flights", "incomes", "heat", "rodents", "fuelCons", "protein", "kin8nm", "cpuSm", "wages")
TEST_ROWS = 1500


def study(table: str, seed: int, out: Path, family: str, rows: int, epochs: int) -> None:
    """Train the base with the families of `MAIN`, or another family with the base that is there already."""
    torch.set_num_threads(1)
    main = out / f"{table}-{seed}.pt"
    path = main if family == "main" else out / f"{table}-{seed}-{family}.pt"
    if path.is_file():
        return
    (source,) = (s for s in get_suite("development").sources if s.name == table)
    split = source.natural_split(seed, max_rows=rows)
    tested = np.sort(np.random.default_rng(seed).permutation(len(split.y_test))[:TEST_ROWS])
    x_new = split.x_test.iloc[tested].reset_index(drop=True)
    settings = TailRegressor(random_state=seed, device="cpu")
    y = split.y_train[:, None]
    inputs, x = settings.inputs().see(split.x_train)
    data = Rows(x, y, np.ones(len(y)), np.empty((len(y), 0))).merged(None)
    number = int(np.random.RandomState(seed).randint(2**31 - 1))
    parts = Split.deal(data.y[:, 0], number, folds="auto", share=settings.validation_fraction)
    inputs = inputs.fit(take_rows(data.X, parts.trained))
    encoded, test = inputs.encode(data.X), inputs.encode(x_new)
    known: dict[str, Any] = {"families": {}, "seconds": {}}
    if family == "main":
        choices = [candidates("auto", data.y[:, 0])]
        began = time.process_time()
        make = settings.base_maker(len(y), given=False)
        base, offset = fit_base(make, encoded.matrix, data.y, data.weight, parts.fold, number, choices)
        known["seconds"]["base"] = time.process_time() - began
        (transform,) = chosen_transforms(base, choices)
        bins = [bins_of(transform, data.y[:, 0], data.weight)]
        supports = [LabelSupport.from_labels(y[:, 0])]
        about = labels_of_targets(settings, bins, data.y.T, data.weight, [Bounds()], supports, [transform])
        given = pd.util.hash_pandas_object(split.x_train, index=False).to_numpy()
        new = pd.util.hash_pandas_object(x_new, index=False).to_numpy()
        catboost, known["seconds"]["catboost"] = plain_catboost(split.x_train, split.y_train, x_new, seed)
        known |= {
            "table": table, "seed": seed, "y": split.y_test[tested], "rare": split.rare[tested],
            "copies": np.isin(new, given), "rows": len(split.y_train), "distinct": len(data.y),
            "labels": about, "offset": offset, "base": base.offset(test.matrix, len(test), None),
            "catboost": catboost,
            "features": encoded.x.shape[1], "columns": split.x_train.shape[1], "weight": data.weight,
        }  # fmt: skip
        names: tuple[str, ...] = MAIN
    else:
        stored = torch.load(main, weights_only=False)
        about, offset, names = stored["labels"], stored["offset"], (family,)
        known["base"] = stored["base"]
    training = Training(settings, inputs, GivenBase(1), about, number)
    examples = training.examples(encoded, data.y, data.weight, offset)
    for name in names:
        changes = {**FAMILIES[name], **({"epochs": epochs} if epochs else {})}
        if "batch" in changes:
            at_once = settings.train_config(len(data.y) * 4 // 5, 0).batch_size
            changes["batch_size"] = changes.pop("batch") * at_once
        alone = name.startswith("alone")
        mine = replace(settings, **changes, **({"base": None} if alone else {}))
        one = replace(training, settings=mine, base=NoBase() if alone else training.base)
        began = time.process_time()
        runs, held = _trained(one, examples.without_base() if alone else examples, parts, None, None, [])
        known["seconds"][name] = time.process_time() - began
        around = latent_offset(known["base"], about)[:, : 0 if alone else 1]
        x_test = beside_features(test.x, around, training.bins)
        raw = [network_prediction(run.network, x_test, around, table=True, device="cpu") for run in runs]
        known["families"][name] = {
            "held": replace(held, raw=tuple(map(small, held.raw))), "raw": [*map(small, raw)],
            "recipe": calibration_recipe(mine, [run.network for run in runs], inputs),
            "epochs": [len(run.histories[0].history) for run in runs],
            "best": [run.histories[0].best_epoch for run in runs],
        }  # fmt: skip
    part = path.with_suffix(".part")
    torch.save(known, part)
    part.rename(path)
    print(f"{path.stem}", {k: round(v, 1) for k, v in known["seconds"].items()}, flush=True)


def small(prediction: Distribution) -> NIG:
    """Return the prediction of a network in float32."""
    nig = prediction.parametric
    assert isinstance(nig, NIG)
    return NIG(*(getattr(nig, name).float() for name in ("gamma", "nu", "alpha", "beta")))


def plain_catboost(x: Any, y: Any, new: Any, seed: int) -> tuple[Any, float]:
    """Return what plain CatBoost predicts of new rows, and its seconds."""
    from catboost import CatBoostRegressor

    others = [c for c in x.columns if not pd.api.types.is_numeric_dtype(x[c])]

    def filled(table: Any) -> Any:
        """Return the table with a name for missing categories, which CatBoost asks for."""
        texts = {c: table[c].astype(object).where(table[c].notna(), "missing").astype(str) for c in others}
        return table.assign(**texts)

    began = time.process_time()
    model = CatBoostRegressor(
        iterations=1000, random_seed=seed, thread_count=1, verbose=False, allow_writing_files=False
    ).fit(filled(x), y, cat_features=others)
    return model.predict(filled(new), thread_count=1), time.process_time() - began


def main() -> None:
    """Train all tables side by side: every seed of the main families, then the others."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--tables", nargs="*")
    parser.add_argument("--families", nargs="*", default=[name for name in FAMILIES if name not in MAIN])
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--rows", type=int, default=2000)
    parser.add_argument("--epochs", type=int, default=0)
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    tables = args.tables or [source.name for source in get_suite("development").sources]
    tables.sort(key=lambda name: LONGEST.index(name) if name in LONGEST else len(LONGEST))
    work = [(table, seed, "main") for seed in range(args.seeds) for table in tables]
    work += [(table, 0, family) for family in args.families for table in tables]
    with ProcessPoolExecutor(args.jobs) as pool:
        runs = [pool.submit(study, t, s, args.out, f, args.rows, args.epochs) for t, s, f in work]
        for run, job in zip(runs, work, strict=True):
            if run.exception() is not None:
                print(job, repr(run.exception()), flush=True)


if __name__ == "__main__":
    main()
