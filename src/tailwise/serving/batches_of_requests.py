"""Requests in a bounded queue, answered by one thread that predicts all waiting rows at once.

Joining requests is what makes a server fast: a call of the model for one row takes nearly as long as for a
hundred. The answers are those of `TailRegressor.predict_frame` and `predict_quantiles`, up to the rounding of
float32 in larger batches.
"""

from __future__ import annotations

import json
import math
import queue
import threading
import time
import warnings
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

import torch

from tailwise.calibration.calibration import Calibration, Raw
from tailwise.lookup import nearest
from tailwise.serving.counters import Counters
from tailwise.serving.row_schema import Cells, Problem, RefusedRequest, RowSchema

if TYPE_CHECKING:
    from tailwise.estimator import TailRegressor

FIGURES = ("prediction", "std", "lower", "upper", "aleatoric_std", "epistemic_std")
"""Numbers of each prediction; the columns of `TailRegressor.predict_frame` without the region."""
COVERAGE = 0.9
LEAST, MOST = 0.01, 0.999
"""Smallest and largest coverage of intervals."""
MAX_LEVELS = 99
"""Most quantiles of one request."""
KEPT_EMPHASES = 64
"""Emphases whose intervals are kept; another one is fitted anew in some ten milliseconds."""


class Options(NamedTuple):
    """What a request asks for besides its rows."""

    coverage: float = COVERAGE
    quantiles: tuple[float, ...] = ()
    emphasis: float | None = None

    @classmethod
    def read(cls, request: Mapping[str, Any]) -> Options:
        """Return the options of a request; a wrong one is a `RefusedRequest`."""
        coverage = request.get("coverage", COVERAGE)
        if not _is_number(coverage) or not LEAST <= coverage <= MOST:
            raise _refused("coverage", f"must be a number from {LEAST} to {MOST}")
        levels = request.get("quantiles") or []
        if not isinstance(levels, list) or len(levels) > MAX_LEVELS:
            raise _refused("quantiles", f"must be a list of at most {MAX_LEVELS} levels")
        if not all(_is_number(level) and 0 < level < 1 for level in levels):
            raise _refused("quantiles", "must be levels between 0 and 1, such as 0.95")
        emphasis = request.get("emphasis")
        if emphasis is not None and (not _is_number(emphasis) or not 0 <= emphasis <= 1):
            raise _refused("emphasis", "must be a number from 0 to 1, or null for the model's own")
        chosen = None if emphasis is None else float(emphasis)
        return cls(float(coverage), tuple(dict.fromkeys(float(level) for level in levels)), chosen)


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _refused(field: str, what: str) -> RefusedRequest:
    return RefusedRequest(422, f"{field} {what}", [Problem(None, None, f"{field} {what}")])


class Answer(NamedTuple):
    """The HTTP status and the JSON text of an answer."""

    status: int
    content: bytes

    @classmethod
    def refusal(cls, error: RefusedRequest) -> Answer:
        """Return what a client gets for a request that cannot be answered."""
        problems = [problem._asdict() for problem in error.problems]
        return cls(error.status, _json({"error": error.message, "problems": problems}))


def _json(value: Any) -> bytes:
    return json.dumps(value, allow_nan=False).encode()


class _Asked(NamedTuple):
    """A request that can be answered."""

    future: Future[Answer]
    cells: Cells
    rows: int
    options: Options
    notes: list[str]


class Batcher:
    """Answers requests to one model in a thread of its own, those that wait at the same time together.

    `max_rows` limits the rows of a request and of a batch. The caller limits how many requests wait.
    """

    def __init__(
        self, model: TailRegressor, counters: Counters, *, max_rows: int = 1000, threads: int | None = None
    ) -> None:
        self.schema = RowSchema.of(model)
        self.max_rows = max_rows
        self._model, self._counters, self._threads = model, counters, threads
        names = model.target_names_ or [str(t) for t in range(model.n_targets_)]
        self.targets = [str(name) for name in names]
        self._calibrations = lru_cache(KEPT_EMPHASES)(self._calibrations_at)
        self._queue: queue.SimpleQueue[tuple[Future[Answer], bytes] | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="tailwise-predictions", daemon=True)
        self._thread.start()

    def submit(self, body: bytes) -> Future[Answer]:
        """Put the body of a request into the queue."""
        future: Future[Answer] = Future()
        self._queue.put((future, body))
        return future

    def close(self) -> None:
        """Answer all requests in the queue and end the thread."""
        self._queue.put(None)
        self._thread.join()

    # -- the thread ----------------------------------------------------------------------------

    def _run(self) -> None:
        if self._threads is not None:
            torch.set_num_threads(self._threads)
        while (job := self._queue.get()) is not None:
            asked: list[_Asked] = []
            while job is not None:
                if job[0].set_running_or_notify_cancel() and (read := self._read(*job)) is not None:
                    asked.append(read)
                if sum(each.rows for each in asked) >= self.max_rows or self._queue.empty():
                    break
                job = self._queue.get()
            if asked:
                self._answer(asked)
            if job is None:
                return

    def _read(self, future: Future[Answer], body: bytes) -> _Asked | None:
        """Return a request as cells and options; one that is wrong is answered at once."""
        try:
            request = _parsed(body)
            options = Options.read(request)
            rows = request["rows"]
            if not isinstance(rows, list) or not rows:
                raise RefusedRequest(422, "rows must be a list of at least one object")
            if len(rows) > self.max_rows:
                raise RefusedRequest(413, f"{len(rows)} rows, at most {self.max_rows} in one request")
            cells, notes = self.schema.read(rows)
            try:
                calibrators = self._calibrations(options.emphasis)
            except ValueError as error:
                raise RefusedRequest(422, str(error)) from None
            return _Asked(future, cells, len(rows), options, notes + _too_wide(calibrators, options.coverage))
        except RefusedRequest as error:
            future.set_result(Answer.refusal(error))
        except Exception as error:
            future.set_exception(error)
        return None

    def _answer(self, asked: Sequence[_Asked]) -> None:
        """Predict all rows at once; if that fails, each request alone, so that none spoils the others."""
        began = time.perf_counter()
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # notes say what a client should know
                answers = self._predicted(asked)
        except Exception as error:
            if len(asked) > 1:
                for each in asked:
                    self._answer([each])
            elif isinstance(error, ValueError):
                refused = RefusedRequest(422, " ".join(str(error).split()))
                asked[0].future.set_result(Answer.refusal(refused))
            else:
                asked[0].future.set_exception(error)
            return
        self._counters.predicted(sum(each.rows for each in asked), time.perf_counter() - began)
        for each, answer in zip(asked, answers, strict=True):
            each.future.set_result(answer)

    def _predicted(self, asked: Sequence[_Asked]) -> list[Answer]:
        fitted = self._model.model_
        raw = fitted.raw(fitted.encode(self.schema.table([each.cells for each in asked])))
        ends = torch.tensor([0, *(each.rows for each in asked)]).cumsum(0).tolist()
        answers: dict[int, Answer] = {}
        for options in dict.fromkeys(each.options for each in asked):
            own = [k for k, each in enumerate(asked) if each.options == options]
            rows = torch.cat([torch.arange(ends[k], ends[k + 1]) for k in own])
            table = self._table(raw, rows, options)
            start = 0
            for k in own:
                part = table[start : start + asked[k].rows]
                start += asked[k].rows
                answers[k] = self._content(part, options, asked[k].notes)
        return [answers[k] for k in range(len(asked))]

    def _table(self, raw: Sequence[Raw], rows: torch.Tensor, options: Options) -> list[dict[str, Any]]:
        """Return the predictions of some rows, by target if there are several."""
        each = []
        for own, calibration in zip(raw, self._calibrations(options.emphasis), strict=True):
            predicted = calibration(own.rows(rows.numpy()))
            columns = predicted.columns(options.coverage)
            cells = [_finite(values.tolist()) for values in columns.values()]
            found = [dict(zip(columns, row, strict=True)) for row in zip(*cells, strict=True)]
            levels = {f"{q:g}": _finite(predicted.quantile(q).tolist()) for q in options.quantiles}
            for k, row in enumerate(found if levels else []):
                row["quantiles"] = {level: values[k] for level, values in levels.items()}
            each.append(found)
        if len(each) == 1:
            return each[0]
        return [dict(zip(self.targets, row, strict=True)) for row in zip(*each, strict=True)]

    def _content(self, rows: Sequence[Any], options: Options, notes: Sequence[str]) -> Answer:
        emphasis = self._model.emphasis_ if options.emphasis is None else options.emphasis
        content = {"predictions": rows, "coverage": options.coverage, "emphasis": emphasis, "notes": notes}
        return Answer(200, _json(content))

    def _calibrations_at(self, emphasis: float | None) -> Sequence[Calibration]:
        return self._model.model_.at(emphasis).targets


def _parsed(body: bytes) -> dict[str, Any]:
    """Return the JSON object of a request; anything else is a `RefusedRequest`."""
    try:
        request = json.loads(body, parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as error:
        reason = "nested too deeply" if isinstance(error, RecursionError) else str(error)
        raise RefusedRequest(400, f"the body is not JSON: {reason}") from None
    if not isinstance(request, dict) or "rows" not in request:
        raise RefusedRequest(422, 'the body must be an object with rows, such as {"rows": [{...}]}')
    known = ("rows", *Options._fields)
    for key in request:
        if key not in known:
            shown = key[:80].encode(errors="replace").decode()
            raise RefusedRequest(422, f"unknown field {shown!r}{nearest(shown, known)}")
    return request


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is not allowed: write null for a missing value")


def _finite(values: list[Any]) -> list[Any]:
    """Replace numbers that JSON does not have by None."""
    return [None if isinstance(value, float) and not math.isfinite(value) else value for value in values]


def _too_wide(calibrations: Sequence[Calibration], coverage: float) -> list[str]:
    """Say for which reason intervals span all training labels."""
    found = [c.intervals for c in calibrations if not c.intervals.can_cover(coverage)]
    return [f"{c.too_few(coverage)} The intervals span all training labels instead." for c in found[:1]]
