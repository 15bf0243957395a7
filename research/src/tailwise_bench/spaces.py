"""What is tuned on every data set, with the value in a method's parts tried first, and the search by Optuna.

A method without an entry has nothing to search.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

import optuna

from tailwise.methods import get_method
from tailwise.networks.vir import LEAST_COUNT


@dataclass(frozen=True)
class Range:
    """Numbers from `low` to `high` to search, evenly on a log scale unless `log` is False.

    `default` is tried first; for a method's options it is the value in the method's parts.
    """

    low: float
    high: float
    log: bool = True
    default: float | None = None


Space = Mapping[str, tuple[Any, ...] | Range]
"""Options to search, such as ``weights.power``: a range, or values with the default first.
A single value is fixed."""

optuna.logging.set_verbosity(optuna.logging.WARNING)

_POWER: Space = {"weights.power": Range(0.0, 1.0, log=False)}
_WEIGHTS: Space = {**_POWER, "weights.clip": (LEAST_COUNT,)}
"""Every method that is weighted by the density of labels searches these, so that none has an advantage; the
clip is fixed because development tables chose so (vir-weights.md)."""
_EVIDENCE: Space = {"evidence.weight": Range(1e-4, 1.0)}
_PREDICTOR: Space = {"evidence.weight": Range(1e-3, 10.0)}
_LATENT: Space = {"kl.weight": Range(1e-5, 1.0)}
_NOISE = Range(0.03, 3.0)
_SCALE: Space = {"perturbation.scale": Range(0.01, 0.5)}
# From the published weight for sentence pairs, 3e-4, to ten times that for ages.
_RANKSIM: Space = {"ranksim.weight": Range(3e-4, 1000.0)}
_RNC: Space = {"rnc.temperature": Range(0.1, 10.0)}
_RHO: Space = {"sharpness.rho": Range(0.01, 1.0)}
_EXPERTS: Space = {"experts.bandwidth": Range(0.5, 4.0), "experts.clip": (LEAST_COUNT,)}

SEARCH: dict[str, Space] = {
    "inv": _WEIGHTS,
    "sqinv": _WEIGHTS,
    "lds": _WEIGHTS,
    "fds": {"smoothing.bandwidth": Range(0.5, 4.0)},
    "lds-fds": _WEIGHTS,
    "der": _EVIDENCE,
    "lds-fds-der": {**_WEIGHTS, **_EVIDENCE},
    "vae": {**_LATENT, "reconstruction.weight": Range(1e-3, 1.0)},
    "infer-noise": _SCALE,
    "infer-dropout": _SCALE,
    "rrt": _WEIGHTS,
    "dense": {"weights.power": Range(0.0, 2.0, log=False)},
    "focal-r": {"focal-r.b": Range(0.02, 20.0), "focal-r.g": Range(0.3, 3.0)},
    "beta-nll": {"beta-nll.b": Range(0.0, 1.0, log=False)},
    "bmse-gai": {"balanced-mse.noise": _NOISE},
    "bmse-bmc": {"batch-mse.noise": _NOISE},
    "bmse-bni": {"balanced-mse.noise": _NOISE},
    "balanced-nll": {"balanced-nll.t": Range(0.0, 1.0, log=False), **_EVIDENCE},
    "ranksim": _RANKSIM,
    "lds-ranksim": {**_RANKSIM, **_WEIGHTS},
    "vir-encoder": _LATENT,
    "vir-predictor": {**_WEIGHTS, **_PREDICTOR},
    "vir-dial": _PREDICTOR,
    "lds-vir-encoder": _WEIGHTS,
    "lds-vir-predictor": {**_WEIGHTS, **_PREDICTOR},
    "vir": {**_WEIGHTS, **_PREDICTOR},
    "rnc": {**_RNC, "schedule.start": (0.5, 0.8)},
    "rnc-joint": {**_RNC, "rnc.weight": Range(0.01, 10.0)},
    "conr": {
        "conr.weight": Range(0.01, 10.0),
        "conr.omega": Range(0.02, 1.0),
        "conr.temperature": Range(0.05, 1.0),
    },
    "uvote": _EXPERTS,
    "srl": {"srl.weight": Range(1e-3, 1.0), "srl.uniformity": Range(1e-3, 1.0)},
    "dist": {"dist.weight": Range(0.03, 10.0)},
    "bsam": {**_WEIGHTS, **_RHO},
    "vir-rnc": {**_WEIGHTS, **_PREDICTOR, "rnc.weight": Range(1e-3, 1.0)},
    "vir-bsam": {**_WEIGHTS, **_PREDICTOR, **_RHO},
    "vir-uvote": {**_EXPERTS, "experts.evidence": Range(1e-3, 10.0)},
    "vir-paper": {**_POWER, **_PREDICTOR},
    "vir-reference": {**_POWER, **_PREDICTOR},
}


def search_space(method: str) -> Space:
    """Return what to search for a registered method, with its own values as defaults."""
    options, whole = get_method(method).parts.as_options(), dict[str, tuple[Any, ...] | Range]()
    for name, of in SEARCH.get(method, {}).items():
        if name not in options:
            raise ValueError(f"cannot search {name!r}: the parts of {method!r} have no such option")
        value = options[name]
        if isinstance(of, Range):
            whole[name] = replace(of, default=value)
        else:
            whole[name] = of if len(of) == 1 else (value, *(other for other in of if other != value))
    return whole


def default_options(space: Space) -> dict[str, Any]:
    """Return the default of every option: of a range, or the first of several values.

    >>> default_options({"a": (1, 2), "b": Range(0.01, 1.0, default=0.1)})
    {'a': 1, 'b': 0.1}
    """
    return {name: of.default if isinstance(of, Range) else of[0] for name, of in space.items()}


def describe_space(space: Space) -> dict[str, Any]:
    """Return the space for JSON: values as lists, ranges by their fields."""
    return {name: asdict(of) if isinstance(of, Range) else list(of) for name, of in space.items()}


def new_study(space: Space, trials: int) -> optuna.Study:
    """Return a study that tries the default first, then random options, and TPE's in its second half."""
    sampler = optuna.samplers.TPESampler(seed=0, n_startup_trials=trials // 2)
    study = optuna.create_study(sampler=sampler)
    study.enqueue_trial({name: of.default if isinstance(of, Range) else 0 for name, of in space.items()})
    return study


def suggest(trial: optuna.Trial, space: Space) -> dict[str, Any]:
    """Return options to try, of two significant digits; more would suggest a precision that is not there."""
    options: dict[str, Any] = {}
    for name, of in space.items():
        if isinstance(of, Range):
            value = trial.suggest_float(name, of.low, of.high, log=of.log)
            options[name] = value if value == of.default else float(f"{value:.2g}")
        else:  # by index: values may have any type, and Optuna takes only numbers and texts
            options[name] = of[trial.suggest_categorical(name, range(len(of)))]
    return options
