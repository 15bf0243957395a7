"""Tuning on Optuna (extra ``search``): the default first, then random configurations, then TPE.

One `Study` serves every contender, outside peers included, and the choice of defaults. It is
deterministic: told the same losses it asks the same questions, which is how a search resumes.
"""

from __future__ import annotations

import math
from dataclasses import asdict
from typing import Any

from tailwise.methods import Range, Space

SEED = 0
DIGITS = 2
"""Significant digits of what is tried within a range; more would only look precise."""
ATTEMPTS = 100
"""Proposals in a row that were tried before after which a search has nothing new to try."""


def require_optuna() -> Any:
    """Return the module, quietened, or say how to get it."""
    try:
        import optuna
    except ImportError:
        raise ImportError("the search needs Optuna: pip install 'tailwise[search]'") from None
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    return optuna


def default_options(space: Space) -> dict[str, Any]:
    """The default of every option.

    >>> default_options({"a": (1, 2), "b": Range(0.01, 1.0, default=0.1)})
    {'a': 1, 'b': 0.1}
    """
    return {name: of.default if isinstance(of, Range) else of[0] for name, of in space.items()}


def describe_space(space: Space) -> dict[str, Any]:
    """The space as JSON can hold it: lists of values, and ranges by their fields."""
    return {name: asdict(of) if isinstance(of, Range) else list(of) for name, of in space.items()}


class Study:
    """Asks for configurations one after the other and is told their losses; lower is better.

    The first is the default, the first half is otherwise random, and TPE proposes the rest. None comes
    twice, so a space of fewer configurations ends the study early. A single trial, or an empty space,
    is the default alone and needs no Optuna.
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
            first = {name: of.default if isinstance(of, Range) else 0 for name, of in space.items()}
            self._study.enqueue_trial(first)

    def ask(self) -> dict[str, Any] | None:
        """The next configuration; None when the trials are used up."""
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
        # By its place: values may be of any kind, and Optuna wants numbers or words.
        return of[self._trial.suggest_categorical(name, list(range(len(of))))]

    def tell(self, loss: float | None) -> None:
        """Say how the last one did; None, or a loss that is not a number, means that it failed."""
        self._told[repr(self._options)] = loss
        if self._study is None:
            return
        if loss is None or not math.isfinite(loss):
            from optuna.trial import TrialState

            self._study.tell(self._trial, state=TrialState.FAIL)
        else:
            self._study.tell(self._trial, loss)
