"""Tuning with Optuna: the default first, then random configurations, then TPE.

One `Study` serves every contender and the choice of defaults. It is deterministic: after the same losses it
proposes the same configurations, so that a search can be resumed.
"""

from __future__ import annotations

import math
from dataclasses import asdict
from typing import Any

from tailwise_bench.recipe import default_options
from tailwise_bench.spaces import Range, Space

SEED = 0
DIGITS = 2
"""Significant digits of values drawn from a range; more would suggest a precision that is not there."""
ATTEMPTS = 100
"""A search ends after this many proposals in a row that have been tried before."""


def require_optuna() -> Any:
    """Import Optuna and silence its log; the error of a missing package says how to install it."""
    try:
        import optuna
    except ImportError:
        raise ImportError("the search needs Optuna: pip install optuna") from None
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    return optuna


def describe_space(space: Space) -> dict[str, Any]:
    """Return the space for JSON: values as lists, ranges by their fields."""
    return {name: asdict(of) if isinstance(of, Range) else list(of) for name, of in space.items()}


def first_trial(space: Space) -> dict[str, Any]:
    """Return the default as the parameters of an Optuna trial; values of a list go by their place."""
    return {name: of.default if isinstance(of, Range) else 0 for name, of in space.items()}


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
            optuna = require_optuna()
            sampler = optuna.samplers.TPESampler(seed=SEED, n_startup_trials=self.trials // 2)
            self._study = optuna.create_study(sampler=sampler)
            self._study.enqueue_trial(first_trial(space))

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
