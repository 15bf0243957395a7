"""What is tuned on every data set, with the value in a method's parts tried first, and the search by Optuna.

A method without an entry has nothing to search.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

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

    def __post_init__(self) -> None:
        least = self.low if self.default is None else self.default
        if not (self.low <= least <= self.high and (self.low > 0 or not self.log)):
            raise ValueError(f"a range needs low <= default <= high, and low > 0 if log, got {self}")


Space = Mapping[str, tuple[Any, ...] | Range]
"""Options to search, such as ``weights.power``: a range, or values with the default first.
A single value is fixed."""

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


# -- tuning with Optuna --------------------------------------------------------------------------

SEED = 0
DIGITS = 2
"""Significant digits of values drawn from a range; more would suggest a precision that is not there."""
ATTEMPTS = 100
"""A search ends after this many proposals in a row that have been tried before."""


def describe_space(space: Space) -> dict[str, Any]:
    """Return the space for JSON: values as lists, ranges by their fields."""
    return {name: asdict(of) if isinstance(of, Range) else list(of) for name, of in space.items()}


class Study:
    """Proposes configurations one after the other and takes their losses; lower is better.

    The first is the default, the others of the first half are random, and TPE proposes the second half. None
    is proposed twice, so a small space ends the study early. One trial, or an empty space, is the default
    alone and does not need Optuna.
    """

    def __init__(self, space: Space, trials: int) -> None:
        self.space = space
        sizes = [math.inf if isinstance(of, Range) else len(of) for of in space.values()]
        self.trials = int(min(trials, math.prod(sizes)))
        self._told: dict[str, float | None] = {}
        self._options: dict[str, Any] = {}
        self._study: Any = None
        if self.trials > 1:
            import optuna

            optuna.logging.set_verbosity(optuna.logging.WARNING)
            sampler = optuna.samplers.TPESampler(seed=SEED, n_startup_trials=self.trials // 2)
            self._study = optuna.create_study(sampler=sampler)
            self._study.enqueue_trial(
                {name: of.default if isinstance(of, Range) else 0 for name, of in space.items()}
            )

    def ask(self) -> dict[str, Any] | None:
        """Return the next configuration; None when there is no other to try."""
        if len(self._told) == self.trials:
            return None
        self._options = default_options(self.space)
        if self._study is None:
            return self._options
        for _ in range(ATTEMPTS):
            self._trial = self._study.ask()
            self._options = {name: self._suggest(name, of) for name, of in self.space.items()}
            if repr(self._options) not in self._told:
                return self._options
            self.tell(self._told[repr(self._options)])
        return None

    def _suggest(self, name: str, of: tuple[Any, ...] | Range) -> Any:
        if isinstance(of, Range):
            value = self._trial.suggest_float(name, of.low, of.high, log=of.log)
            return value if value == of.default else float(f"{value:.{DIGITS}g}")
        # By index: values may have any type, and Optuna takes only numbers and strings.
        return of[self._trial.suggest_categorical(name, list(range(len(of))))]

    def tell(self, loss: float | None) -> None:
        """Take the loss of the last configuration; None, NaN or infinity means that it failed."""
        self._told[repr(self._options)] = loss
        if self._study is None:
            return
        if loss is None or not math.isfinite(loss):
            from optuna.trial import TrialState

            self._study.tell(self._trial, state=TrialState.FAIL)
        else:
            self._study.tell(self._trial, loss)
