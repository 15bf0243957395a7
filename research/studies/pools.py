"""Judge pools of families on what `families.py` stored; prints the tables of research/results/networks.md.

python research/studies/pools.py FOLDER --lines pools.jsonl
"""

from __future__ import annotations

import argparse
import json
from collections import defaultdict
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import torch

from tailwise.calibration.calibration import Raw
from tailwise.calibration.scaling import fit_scaling
from tailwise.distributions.members import NIG, Distribution, pooled, stack
from tailwise.metrics.scores import winkler

SHARES = tuple(k / 20 for k in range(21))
FIGURES = ("mae", "rmse", "crps", "rare_mae", "rare_crps", "score")


def exact(prediction: Distribution) -> NIG:
    """Return stored predictions in float64."""
    nig = prediction.parametric
    return NIG(*(getattr(nig, name).double() for name in ("gamma", "nu", "alpha", "beta")))


def pool(around: Distribution, alone: Distribution, share: float) -> Distribution:
    """Return one distribution with the moments of both."""
    if share in (0, 1):
        return alone if share else around
    return pooled([around, alone], torch.tensor([1 - share, share], dtype=torch.float64))


def losses(around: Distribution, alone: Distribution, y: Any, about: Any) -> dict[str, Any]:
    """Return the losses of held-out rows for every share, in label units. (S, n) each"""
    latent = about.transform.limited(y)
    pair = [fit_scaling(family, latent).apply(family) for family in (around, alone)]
    found: dict[str, list[Any]] = defaultdict(list)
    for share in SHARES:
        latents = pool(*pair, share)
        distribution = about.transform.apply(latents)
        labels = torch.from_numpy(y)
        found["latent"].append(latents.crps(torch.from_numpy(latent)).numpy())
        found["crps"].append(distribution.crps(labels).numpy())
        error = (distribution.point - labels).numpy()
        found["mae"].append(np.abs(error))
        found["rmse"].append(error**2)
    return {name: np.stack(rows) for name, rows in found.items()}


def within(loss: Any) -> int:
    """Return the smallest share within one standard error of the best one. (S, n)"""
    best = int(loss.mean(1).argmin())
    change = loss - loss[best]
    error = change.std(1, ddof=1) / np.sqrt(loss.shape[1])
    return int(np.flatnonzero(change.mean(1) <= error)[0])


def shares(loss: dict[str, Any], rows: Any = slice(None)) -> dict[str, float]:
    """Return the share that each rule takes."""
    part = {name: of[:, rows] for name, of in loss.items()}
    # Linear in the rows, so that it has a standard error; a small change of the RMSE is half that of the MSE.
    both = part["crps"] / part["crps"][0].mean() + part["mae"] / part["mae"][0].mean()
    both += part["rmse"] / part["rmse"][0].mean() / 2
    exact_mean = sum(
        (of.mean(1) ** power) / (of[0].mean() ** power)
        for of, power in ((part["crps"], 1), (part["mae"], 1), (part["rmse"], 0.5))
    )
    chosen = {
        "crps": SHARES[int(part["latent"].mean(1).argmin())],
        "label crps": SHARES[int(part["crps"].mean(1).argmin())],
        "all three": SHARES[int(exact_mean.argmin())],
        "crps, 1 se": SHARES[within(part["crps"])],
        "all three, 1 se": SHARES[within(both)],
        "half": 0.5,
    }
    return {rule: 0.0 if s < 0.1 else 1.0 if s > 0.9 else s for rule, s in chosen.items()}


def figures(stored: Any, first: Any, second: Any, share: float, emphasis: float | None = 0.0) -> Any:
    """Return the figures of a calibrated pool on test rows."""
    about, y, rare = stored["labels"], stored["y"], stored["rare"]
    held = replace(
        first["held"], raw=(pool(exact(first["held"].raw[0]), exact(second["held"].raw[0]), share),)
    )
    (calibration,) = held.calibrations(about, [first["recipe"]])
    raws = [pool(exact(a), exact(b), share) for a, b in zip(first["raw"], second["raw"], strict=True)]
    raw = Raw.of(stack(raws), np.zeros(len(y), np.int64))
    predicted = (calibration if emphasis is None else calibration.at(emphasis))(raw)
    labels = torch.from_numpy(y)
    error = (predicted.distribution.point - labels).numpy()
    crps = predicted.distribution.crps(labels).numpy()
    ends = predicted.interval(0.9)
    low, high = (end.numpy() for end in ends)
    return {
        "mae": float(np.abs(error).mean()),
        "rmse": float(np.sqrt((error**2).mean())),
        "crps": float(crps.mean()),
        "rare_mae": float(np.abs(error[rare]).mean()),
        "rare_crps": float(crps[rare].mean()),
        "score": float(winkler(*ends, labels).mean()),
        "covered": float(((low <= y) & (y <= high)).mean()),
        "rare_covered": float(((low <= y) & (y <= high))[rare].mean()),
        "new_mae": float(np.abs(error[~stored["copies"]]).mean()),
    }


def lines_of(path: Path) -> list[dict[str, Any]]:
    """Return a line for each rule on a table and seed, and those of other families on the first seed."""
    stored = torch.load(path, weights_only=False)
    families = {**stored["families"]}
    seconds = {**stored["seconds"]}
    for other in sorted(path.parent.glob(f"{path.stem}-*.pt")):
        more = torch.load(other, weights_only=False)
        families |= more["families"]
        seconds |= more["seconds"]
    around, about = families["around"], stored["labels"][0]
    key = {"table": stored["table"], "seed": stored["seed"]}
    distinct = stored["distinct"] / stored["rows"]
    held = around["held"]
    y, n = held.y[:, 0], len(held.y)
    lines = []
    plain = stored["catboost"] - stored["y"]
    lines.append(
        key
        | {"what": "catboost", "mae": float(np.abs(plain).mean()), "rmse": float(np.sqrt((plain**2).mean()))}
        | {"rare_mae": float(np.abs(plain[stored["rare"]]).mean()), "seconds": seconds["catboost"]}
    )
    cached: dict[Any, Any] = {}

    def line(what: str, name: str, share: float, **more: Any) -> None:
        if (name, share) not in cached:
            cached[name, share] = figures(stored, around, families[name], share)
        lines.append(key | {"what": what, "family": name, "share": share} | cached[name, share] | more)

    spent = seconds["base"] + seconds["around"]
    line("around", "alone", 0.0, seconds=spent, distinct=distinct)
    dial = figures(stored, around, around, 0.0, emphasis=None)
    lines.append(key | {"what": "chosen emphasis", "share": 0.0, "seconds": spent} | dial)
    folds = np.array_split(np.arange(n), 5)
    sizes = np.cumsum([0] + [len(part) for part in folds])
    for name in [name for name in families if name != "around"]:
        loss = losses(exact(held.raw[0]), exact(families[name]["held"].raw[0]), y, about)
        seconds_of = {"seconds": spent + seconds[name], "epochs": families[name]["epochs"]}
        line("family alone", name, 1.0, **seconds_of)
        for rule, share in shares(loss).items():
            if name != "alone" and rule in ("half",):
                continue
            line(rule, name, share if distinct >= 0.5 else 0.0, **seconds_of)
        for rule, folds_used in product(("label crps", "all three", "all three, 1 se"), (1, 2)):
            if name == "alone":
                first = shares(loss, slice(0, sizes[folds_used]))[rule]
                share = shares(loss)[rule] if first and distinct >= 0.5 else 0.0
                cost = seconds[name] * (1 if first else folds_used / 5)
                line(f"{rule}, after {folds_used}", name, share, seconds=spent + cost)
    return lines


def summary(lines: list[dict[str, Any]]) -> None:
    """Print geometric means of the ratios to networks around the base, and the worst tables."""
    at = {(row["table"], row["seed"]): row for row in lines if row["what"] == "around"}
    rules = dict.fromkeys((row.get("family", ""), row["what"]) for row in lines)
    print(
        "| family | rule | "
        + " | ".join(FIGURES)
        + " | mean of 3 | seconds | share | covered | worst MAE, CRPS | beyond |"
    )
    for family, rule in rules:
        rows = [r for r in lines if r["what"] == rule and r.get("family", "") == family]
        logs: dict[str, dict[str, list[float]]] = {f: defaultdict(list) for f in (*FIGURES, "seconds")}
        for row in rows:
            one = at[row["table"], row["seed"]]
            for f, of in logs.items():
                if f in row:
                    of[row["table"]].append(np.log(max(row[f], 1e-12) / max(one[f], 1e-12)))
        means = {
            f: np.exp(np.mean([np.mean(v) for v in of.values()])) if of else np.nan for f, of in logs.items()
        }
        beyond, worst = [], []
        for f in ("mae", "crps"):
            for table, v in logs[f].items():
                error = np.std(v, ddof=1) / np.sqrt(len(v)) if len(v) > 1 else 0.0
                worst.append((np.exp(np.mean(v)), f"{table} {f}"))
                if np.mean(v) - 2 * error > np.log(1.02):
                    beyond.append(f"{table} {f} {np.exp(np.mean(v)):.3f}")
        three = np.exp(np.mean([np.log(means[f]) for f in ("mae", "rmse", "crps")]))
        share = np.mean([r.get("share", np.nan) for r in rows])
        covered = np.mean([r.get("covered", np.nan) for r in rows])
        top = max(worst) if worst else (np.nan, "")
        ratios = [f"{means[f]:.3f}" for f in FIGURES]
        told = [f"{three:.4f}", f"{means['seconds']:.2f}", f"{share:.2f}", f"{covered:.3f}"]
        cells = [family, f"{rule} ({len(rows)})", *ratios, *told, f"{top[0]:.3f} {top[1]}", ", ".join(beyond)]
        print(f"| {' | '.join(cells)} |")


def main() -> None:
    """Judge all files of a folder."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--lines", type=Path, required=True)
    parser.add_argument("--part", default="0/1")
    args = parser.parse_args()
    torch.set_num_threads(1)
    k, parts = map(int, args.part.split("/"))
    done = [json.loads(text) for text in args.lines.read_text().splitlines()] if args.lines.is_file() else []
    known = {(row["table"], row["seed"]) for row in done}
    paths = sorted(p for p in args.folder.glob("*.pt") if p.stem.count("-") == 1)
    for path in paths[k::parts]:
        table, _, seed = path.stem.rpartition("-")
        if (table, int(seed)) in known:
            continue
        new = lines_of(path)
        with args.lines.open("a") as file:
            file.writelines(json.dumps(row) + "\n" for row in new)
        done += new
    summary(done)


if __name__ == "__main__":
    main()
