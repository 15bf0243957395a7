"""Tuning with Optuna (extra ``search``): the default first, then random configurations, then TPE.

One `Study` serves every contender and the choice of defaults. It is deterministic: after the same losses it
proposes the same configurations, so that a search can be resumed. A `SharedStudy` is stored in a
database, and several processes, also on several machines, try its configurations.
"""

from __future__ import annotations

import json
import math
import sys
from dataclasses import asdict
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from tailwise.benchmark.data.recipe import default_options
from tailwise.benchmark.run.claims import Claims, FileClaims, PostgresClaims, waiting_for
from tailwise.methods import Range, Space

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
        raise ImportError("the search needs Optuna: pip install 'tailwise[search]'") from None
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


# -- many processes ------------------------------------------------------------------------------


SCHEMES = ("sqlite:///", "postgresql://")


def check_storage(url: str) -> None:
    """Raise an error if a URL does not name a database that can store a search."""
    if not url.startswith(SCHEMES):
        raise ValueError(
            f"{url.split('://', 1)[0]!r} is not a database for a search: give sqlite:///FILE, or "
            "postgresql://USER@HOST/NAME"
        )


def claims_on(url: str) -> Claims:
    """Return the claims of processes that share a database."""
    check_storage(url)
    if url.startswith("sqlite"):
        return FileClaims(Path(url.removeprefix("sqlite:///")).absolute())
    return PostgresClaims(url)


class SharedStudy(Study):
    """A study in a database. Processes that open it by the same name try its configurations together.

    Each configuration is tried by one process; if that process dies, by another. The random proposals are
    always the same. Those of TPE depend on the losses, and with several processes on the order in which these
    arrive. A context manager.
    """

    def __init__(self, space: Space, trials: int, url: str, name: str) -> None:
        super().__init__(space, trials)
        optuna = require_optuna()
        self.name, self.claims = name, claims_on(url)
        with waiting_for(self.claims, "tailwise tables"):  # two processes must not create them at once
            self._storage = optuna.storages.RDBStorage(url.replace("postgresql://", "postgresql+psycopg://"))
            self._study = optuna.create_study(storage=self._storage, study_name=name, load_if_exists=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._storage.remove_session()
        self._storage.engine.dispose()
        self.claims.close()

    def ask(self) -> dict[str, Any] | None:
        """Return a configuration that no other process tries; None if there is none, or none now."""
        from optuna.trial import Trial, TrialState

        with waiting_for(self.claims, self.name):
            for left in self._study.get_trials(deepcopy=False, states=(TrialState.RUNNING,)):
                # Whoever can claim it knows that its process is dead.
                if self.claims.take(self._claim(left.number)) and self._proposed(
                    Trial(self._study, left._trial_id), self.trials // 2
                ):
                    return self._options
            startup = self.trials // 2
            while not self._all_asked():
                if not self._study.get_trials(deepcopy=False):
                    self._study.enqueue_trial(first_trial(self.space))
                trial = self._study.ask()
                self.claims.take(self._claim(trial.number))
                if self._proposed(trial, startup):
                    return self._options
                startup = sys.maxsize  # TPE would insist: the next proposal is random
        return None

    def _claim(self, number: int) -> str:
        return f"{self.name}, trial {number}"

    def _known(self) -> dict[str, int]:
        """Return every configuration that was or is being tried, with the number of its trial."""
        trials = self._study.get_trials(deepcopy=False)
        return {t.user_attrs["options"]: t.number for t in trials if "options" in t.user_attrs}

    def _all_asked(self) -> bool:
        known, count = self._known(), len(self._study.get_trials(deepcopy=False))
        return len(known) >= self.trials or count - max(known.values(), default=0) > ATTEMPTS

    def _proposed(self, trial: Any, startup: int) -> bool:
        """Draw the configuration of a trial; False, and the trial ends, if another trial has it."""
        from optuna.samplers import TPESampler

        self._trial = trial
        # Seeded by the number, so that every process continues where the others are.
        self._study.sampler = TPESampler(seed=SEED + trial.number, n_startup_trials=startup)
        self._options = {name: self._suggest(name, of) for name, of in self.space.items()}
        text = repr(self._options)
        if self._known().get(text, trial.number) != trial.number:
            self._end(None)
            return False
        trial.set_user_attr("options", text)
        return True

    def tell(self, loss: float | None, line: dict[str, Any] | None = None) -> None:
        """Take the loss of the last configuration, and what is to be recorded about it."""
        with waiting_for(self.claims, self.name):
            self._trial.set_user_attr("line", json.dumps(line))
            self._end(loss)

    def _end(self, loss: float | None) -> None:
        super().tell(loss)
        self.claims.release(self._claim(self._trial.number))

    def outcome(self) -> tuple[dict[str, Any] | None, list[dict[str, Any]]] | None:
        """Return the options with the least loss (None if all failed) and all lines; None before the end."""
        with waiting_for(self.claims, self.name):
            trials = self._study.get_trials(deepcopy=False)
            if not self._all_asked() or not all(trial.state.is_finished() for trial in trials):
                return None
        told = [trial for trial in trials if "line" in trial.user_attrs]
        good = [trial for trial in told if trial.value is not None]
        best = min(good, key=lambda trial: trial.value, default=None)
        if best is not None:
            self._trial = best
        options = {name: self._suggest(name, of) for name, of in self.space.items()} if best else None
        return options, [json.loads(trial.user_attrs["line"]) for trial in told]
