"""Golden cases of `TailRegressor`."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import pandas as pd
import torch
from catboost import CatBoostRegressor
from sklearn.ensemble import HistGradientBoostingRegressor
from sklearn.linear_model import Ridge

from tailwise import TailRegressor, __version__
from tailwise.explanations import importance, partial_dependence, shapley
from tailwise.serving.model_card import model_card
from tailwise.serving.web import Service
from tests.golden import tables
from tests.golden.recording import add_case, case
from tests.picture_samples import pictures, registered_torchvision

NEW = 30
"""The first rows of every table are not trained on."""
SHOWN = 8
"""So many of them are recorded one by one."""
KEY = b"a key of 24 bytes or so."


def made(**parameters: Any) -> TailRegressor:
    """Two networks without a base, trained for three epochs, unless told otherwise."""
    return TailRegressor(**{"base": None, "folds": 2, "epochs": 3, "random_state": 0, **parameters})


def trees(iterations: int = 20) -> CatBoostRegressor:
    return CatBoostRegressor(iterations=iterations, thread_count=1, verbose=False, allow_writing_files=False)


def bumps() -> HistGradientBoostingRegressor:
    return HistGradientBoostingRegressor(max_iter=10, early_stopping=False)


def answers(model: TailRegressor, X: Any, y: Any, **asked: Any) -> dict[str, Any]:
    """Return all that users ask of a fitted model."""
    base = asked.pop("base_prediction", None)
    given = {} if base is None else {"base_prediction": base}
    shown = {} if base is None else {"base_prediction": base[:SHOWN]}
    rows, labels = tables.part(X, slice(SHOWN)), torch.from_numpy(np.asarray(y, np.float64)[:SHOWN])
    point, std = model.predict(rows, return_std=True, **asked, **shown)
    predicted = model.predict_distribution(rows, **asked, **shown)
    each = predicted if isinstance(predicted, list) else [predicted]
    return {
        "predict": point,
        "std": std,
        "interval": model.predict_interval(rows, 0.9, **asked, **shown),
        "quantiles": model.predict_quantiles(rows, [0.05, 0.5, 0.95], **asked, **shown),
        "frame": model.predict_frame(rows, 0.8, **asked, **shown),
        "mean": [d.mean for d in each],
        "variance": [d.variance for d in each],
        "nll": [d.nll(own) for d, own in zip(each, labels.reshape(SHOWN, -1).T, strict=True)],
        "cdf": [d.cdf(own) for d, own in zip(each, labels.reshape(SHOWN, -1).T, strict=True)],
        "score": model.score_by_region(X, y, **asked, **given),
        "emphasis": model.emphasis_,
        "explain": model.explain_intervals(**asked),
    }


def fitted(model: TailRegressor, X: Any, y: Any, **arguments: Any) -> TailRegressor:
    """Fit on all rows but the new ones."""
    return model.fit(tables.part(X, slice(NEW, None)), y[NEW:], **arguments)


def trained(model: TailRegressor, X: Any, y: Any, **arguments: Any) -> dict[str, Any]:
    """Fit on all rows but the new ones, and return the answers for these."""
    return answers(fitted(model, X, y, **arguments), tables.part(X, slice(NEW)), y[:NEW])


def add(
    name: str,
    table: Callable[[], tuple[Any, Any]] = tables.numbers,
    fit: Mapping[str, Any] = MappingProxyType({}),
    **parameters: Any,
) -> None:
    """Register a case that differs in its table, arguments of `fit` or parameters of the constructor."""
    add_case(name, lambda folder: trained(made(**parameters), *table(), **fit))


add("one-network", folds=1)
add("default", base="auto", folds="auto")
add("default-small", partial(tables.numbers, 95), base="auto", folds="auto")
add("default-tiny", partial(tables.numbers, NEW + 12), base="auto", folds="auto")
add("columns", tables.columns)
add("columns-with-trees", tables.columns, base=trees())
add("base-catboost", base="catboost", folds=1)
add("base-hist-gradient-boosting", base="hist-gradient-boosting", folds=1)
add("base-lightgbm", base="lightgbm", folds=1)
add("base-without-weights", tables.simple_columns, base=HistGradientBoostingRegressor(max_iter=3))
add("training-options", epochs=4, batch_size=16, lr=0.01, weight_decay=0.1, patience=1, monitor="crps")
add("held-out-share", folds=1, validation_fraction=0.4, epochs="auto", patience=2)
add("bins", bins=7, many=40, few=10)
add("bin-edges", bins=[-1.0, 0.5, 1.0, 2.0, 4.0, 60.0])
add("sparse-table", tables.sparse_numbers)
add("mass-at-zero", tables.zeros, base=bumps())
add("groups", tables.simple_columns, {"groups": "count"}, base=bumps())
add("time", tables.columns, {"time": "day"}, base=bumps(), folds="auto")
add("weights", fit={"sample_weight": np.random.default_rng(3).uniform(0.2, 3, 150)[NEW:]}, base=bumps())
_rows, _new = ([part[rows] for part in tables.numbers(200)] for rows in (slice(150), slice(150, None)))
add("eval-set", lambda: (_rows[0], _rows[1]), {"eval_set": _new}, base=bumps(), folds="auto")


@case
def several_targets(folder: Path) -> dict[str, Any]:
    X, y = tables.simple_columns()
    labels = pd.DataFrame({"price": y, "number": np.floor(y).clip(0), "noise": np.cos(9 * y)})
    return trained(made(base=bumps(), bounds=[None, (0, None), (-1, 1)]), X, labels)


@case
def several_targets_by_shared_members(folder: Path) -> dict[str, Any]:
    X, y = tables.numbers()
    return trained(made(backbone="tabm", folds=1), X, np.column_stack([y, X[:, 1]]))


@case
def repeated_rows(folder: Path) -> dict[str, Any]:
    X, y = tables.numbers(90)
    again = np.r_[np.arange(90), np.arange(NEW, 60), np.arange(NEW, 45)]
    return trained(made(base=Ridge()), X[again], y[again])


add("bounds-low", tables.numbers, bounds=(-1.5, None))
add("bounds-both", tables.counts, bounds=(0, 60), method="vir")
add("bounds-observed", base=bumps(), bounds="observed", emphasis=0.5)
add("whole-numbers", tables.counts)
add("whole-numbers-ignored", tables.counts, keep_values=False)
add("scaling-none", calibrate=False)
add("scaling-balanced", calibrate="balanced")
add("intervals-none", conformal=None)
add("intervals-global", conformal="global", base=bumps())
add("intervals-global-of-one-network", conformal="global", folds=1)
add("emphasis-none", base=bumps(), emphasis=0)
add("emphasis-full", base=bumps(), emphasis=1)
add("intervals-by-category", tables.columns, conformal_by="kind")
add("intervals-by-number", conformal_by=1, base=bumps(), emphasis=0.4)


@case
def dial(folder: Path) -> dict[str, Any]:
    """One model under other emphases and label priors."""
    X, y = tables.numbers()
    model = fitted(made(base=bumps()), X, y)
    asked = {
        "none": {"emphasis": 0.0},
        "some": {"emphasis": 0.35},
        "full": {"emphasis": 1.0},
        "sample": {"label_prior": np.linspace(0, 8, 40)},
        "counts": {"label_prior": ([0, 1, 2, 9], [1, 1, 5])},
        "density": {"label_prior": lambda label: np.exp(-label / 3)},
    }
    return {name: answers(model, X[:NEW], y[:NEW], **one) for name, one in asked.items()}


@case
def dial_of_several_targets(folder: Path) -> dict[str, Any]:
    X, y = tables.numbers()
    labels = np.column_stack([y, X[:, 1]])
    model = fitted(made(bounds=[(-1.5, None), None], emphasis=0.2), X, labels)
    prior = {"label_prior": [np.linspace(0, 8, 40), None]}
    return {
        "emphasis": answers(model, X[:NEW], labels[:NEW], emphasis=0.6),
        "prior": answers(model, X[:NEW], labels[:NEW], **prior),
    }


for _method in ("vanilla", "vir", "vir-paper", "rrt", "ensemble", "two-part", "smogn", "lds-fds-der", "vae"):
    add(f"with-{_method}", method=_method)
add("with-two-part-of-counts", tables.counts, method="two-part", base=bumps())
add("with-ensemble-and-base", method="ensemble", base=bumps(), emphasis=0.5)
add(
    "with-options", method="vir", method_options={"kl.weight": 0.01, "latent.dim": 6, "inference": "marginal"}
)
for _backbone in ("mlp", "residual", "tabm"):
    add(f"backbone-{_backbone}", tables.simple_columns, backbone=_backbone, folds=1)


def given_base(backbone: Any, folder: Path) -> dict[str, Any]:
    X, y = tables.numbers()
    base = np.exp(X[:, 0])
    x = X if backbone == "auto" else torch.tensor(X, dtype=torch.float32)
    model = fitted(made(backbone=backbone), x, y, base_prediction=base[NEW:])
    return answers(model, x[:NEW], y[:NEW], base_prediction=base[:NEW])


add_case("given-base", partial(given_base, "auto"))
add_case("own-network-on-a-given-base", partial(given_base, tables.Plain()))


@case
def own_network_of_two_inputs(folder: Path) -> dict[str, Any]:
    X, y = tables.numbers()
    one, two = torch.tensor(X, dtype=torch.float32), torch.tensor(X[:, ::-1].copy(), dtype=torch.float32)
    return trained(made(backbone=tables.Pair, folds=1), {"one": one, "two": two}, y)


@case
def image_arrays(folder: Path) -> dict[str, Any]:
    registered_torchvision()
    labels = np.repeat(np.arange(1.0, 9.0), [24, 18, 14, 10, 8, 6, 4, 4])
    labels = np.random.default_rng(0).permutation(labels)
    model = made(backbone="resnet18", folds="auto", epochs=1, batch_size=32, base="auto")
    return trained(model, pictures(labels, 32), labels)


@case
def trained_further(folder: Path) -> dict[str, Any]:
    X, y = tables.simple_columns()
    start = made(base=bumps()).fit(X[NEW:90], y[NEW:90])
    return answers(made(epochs=2).fit(X[90:], y[90:], init_model=start), X[:NEW], y[:NEW])


@case
def recalibrated(folder: Path) -> dict[str, Any]:
    X, y = tables.simple_columns(240)
    model = made(base=bumps(), conformal_by="kind").fit(X[NEW:150], y[NEW:150])
    found = {"before": model.coverage_by(X[150:], y[150:], "kind")}
    model.recalibrate(X[150:], y[150:])
    return {
        **found,
        "after": answers(model, X[:NEW], y[:NEW]),
        "by-number": model.coverage_by(X[150:], y[150:], "size", 0.8),
        "other-emphasis": answers(model, X[:NEW], y[:NEW], emphasis=0.5),
    }


@case
def saved(folder: Path) -> dict[str, Any]:
    """A model written and read."""
    X, y = tables.columns()
    model = fitted(made(base=trees(), conformal_by="kind", bounds=(-2, None)), X, y)
    model.save(folder / "m.tailwise", key=KEY)
    return answers(TailRegressor.load(folder / "m.tailwise", key=KEY), X[:NEW], y[:NEW])


@case
def onnx(folder: Path) -> dict[str, Any]:
    """An exported model with base, dial and intervals, run by onnxruntime. Exporting takes 20 seconds."""
    import onnxruntime

    X, y = tables.simple_columns()
    model = fitted(made(base=trees(5), folds=1, emphasis=0.4), X, y)
    model.export_onnx(folder / "m.onnx", quantiles=[0.05, 0.5, 0.95], coverage=0.9)
    session = onnxruntime.InferenceSession(folder / "m.onnx")
    outputs = session.run(None, {"x": model.preprocessor_.matrix(X[:SHOWN])})
    return dict(zip([output.name for output in session.get_outputs()], outputs, strict=True))


@case
def served(folder: Path) -> dict[str, Any]:
    """What the server answers, and the card of the model."""
    from fastapi.testclient import TestClient

    X, y = tables.columns()
    model = fitted(made(base=bumps(), conformal_by="kind"), X, y)
    rows = json.loads(X[:3].to_json(orient="records", date_format="iso"))
    asked = {"rows": rows, "coverage": 0.8, "quantiles": [0.1], "emphasis": 0.5}
    with TestClient(Service(model).app) as client:
        return {
            "schema": client.get("/schema").json(),
            "predicted": client.post("/predict", json={"rows": rows}).json(),
            "asked": client.post("/predict", json=asked).json(),
            "refused": client.post("/predict", json={"rows": [{"size": "large"}]}).json(),
            "card": model_card(model, name="trees").replace(__version__, "VERSION"),
        }


def _streamed(model: TailRegressor, rows: Any, table: pd.DataFrame, **arguments: Any) -> dict[str, Any]:
    model.fit_batches(rows, arguments.pop("target", "price"), **arguments)
    inputs = [c for c in table if c not in ("price", "second", "weight")]
    return answers(model, table[inputs][:NEW], table[model.target_names_][:NEW].squeeze(axis=1))


def _stream_table(rows: int = 300) -> pd.DataFrame:
    X, y = tables.simple_columns(rows)
    return X.assign(price=y).reset_index(drop=True)


@case
def stream_of_one_table(folder: Path) -> dict[str, Any]:
    table = _stream_table()
    return _streamed(made(folds="auto", base=bumps()), table[NEW:], table, shuffle=50)


@case
def stream_of_two_files(folder: Path) -> dict[str, Any]:
    table = _stream_table()
    table["weight"] = np.random.default_rng(0).uniform(0.5, 2, len(table))
    table["second"] = np.floor(table["price"])
    table[NEW:160].to_parquet(folder / "1.parquet")
    table[160:].to_parquet(folder / "2.parquet")
    model = made(folds=1, conformal_by="kind", bounds=[None, (-9, None)])
    return _streamed(model, folder, table, target=["price", "second"], weight="weight", sample=150)


@case
def explanations(folder: Path) -> dict[str, Any]:
    X, y = tables.columns()
    model = fitted(made(base=bumps(), emphasis=0.3), X, y)
    shares = shapley(model, X[:4], X[NEW:], background_rows=10)
    widths = shapley(model, X[:2], X[NEW:], background_rows=5, of="width", emphasis=0.0)
    measures = ["error", "crps", "width", "std"]
    return {
        "importance": importance(model, X[:NEW], y[:NEW], measures=measures, repeats=2),
        "shapley": {"base": shares.base, "values": shares.values, "error": shares.error},
        "reasons": [str([name for name, _ in row]) for row in shares.reasons()],
        "widths": {"base": widths.base, "values": widths.values},
        "by-number": partial_dependence(model, X[:NEW], "size", points=4),
        "by-category": partial_dependence(model, X[:NEW], "kind"),
        "by-day": partial_dependence(model, X[:NEW], "day", points=3, emphasis=0.9),
    }
