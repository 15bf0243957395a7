"""An HTTP server for one model: /predict, /health, /metrics, /schema and a page about them.

Memory is bounded: at most `max_waiting` requests are read and wait, each with a body of at most `max_body`
bytes. A request beyond that is answered at once with status 503 and Retry-After, before its body is read. A
request that was let in is answered, also while the server shuts down.
"""

from __future__ import annotations

import asyncio
import json
import socket
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from itertools import islice
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import numpy as np
import uvicorn
from fastapi import FastAPI
from jinja2 import Environment, PackageLoader
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    FailFast,
    Field,
    ValidationError,
    create_model,
)
from pydantic_core import to_json
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import HTMLResponse, PlainTextResponse, Response

from tailwise._version import __version__
from tailwise.lookup import nearest
from tailwise.serving.columns import COVERAGE, Column, Columns
from tailwise.tables.columns import shown_cell

if TYPE_CHECKING:
    from tailwise.calibration.calibration import Predicted
    from tailwise.estimator import TailRegressor

__all__ = ["Limits", "Service", "listen", "server"]

MAX_LEVELS = 99
"""Most quantiles of one request."""
MAX_SHOWN = 20
"""Most problems, and most notes, in one answer; most known categories in the schema of a column."""
RETRY_SECONDS = 1
KEEP_ALIVE_SECONDS = 75
"""Idle connections are closed after this time. A client may send its next request just then, and lose it."""
MAX_CONNECTIONS = 1000
"""Connections beyond this many are answered with status 503 as well."""
GRACE_SECONDS = 30
"""Time that a server has to answer what it has let in after it was asked to stop."""
STATUS = {"json_invalid": 400, "too_long": 413}
"""Statuses of problems that pydantic finds; 422 for all others."""
REFUSALS = {
    400: "The body is not JSON.",
    408: "The body took too long.",
    413: "Too many rows, levels or bytes.",
    422: "Rows or options are wrong; problems names row and column.",
    503: "Too many requests wait; Retry-After says when to try again.",
}


@dataclass(frozen=True)
class Limits:
    """What a server accepts."""

    max_rows: int = 1000
    """Rows of one request, and of the batch that the model predicts at once."""
    max_body: int = 4 << 20
    """Bytes of one request."""
    max_waiting: int = 64
    """Requests that are read, wait or are being answered."""
    body_seconds: float = 10.0
    """Time that a client has to send its request."""


# -- requests and answers --------------------------------------------------------------------------


class Options(BaseModel):
    """What a request to /predict asks for besides its rows."""

    model_config = ConfigDict(extra="forbid")

    coverage: float = Field(default=COVERAGE, ge=0.01, le=0.999, strict=True)
    rare: float | None = Field(
        default=None, ge=0.01, le=0.999, strict=True, description="Share of the rarest labels to contain too."
    )
    quantiles: list[Annotated[float, Field(gt=0, lt=1, strict=True)]] = Field(
        default=[], max_length=MAX_LEVELS
    )
    emphasis: float | None = Field(
        default=None,
        ge=0,
        le=1,
        strict=True,
        description="Attention to rare labels; null is the model's own.",
    )


class Prediction(BaseModel):
    """The columns of `TailRegressor.predict_frame`, and the quantiles that were asked for."""

    prediction: float
    std: float
    lower: float
    upper: float
    aleatoric_std: float
    epistemic_std: float
    region: str
    quantiles: dict[str, float] = Field({}, description="Left out unless asked for.")


class Answer(BaseModel):
    """A prediction for each row, by target if there are several."""

    predictions: list[Prediction] | list[dict[str, Prediction]]
    coverage: float
    rare: float | None
    emphasis: float | list[float]
    notes: list[str]


class Problem(BaseModel):
    """What is wrong; `column` is null for a whole row, `row` (counted from 0) for the request."""

    row: int | None = None
    column: str | None = None
    problem: str


class Refusal(BaseModel):
    """The answer to a request that cannot be answered."""

    error: str
    problems: list[Problem] = []


def row_model(columns: Columns) -> type[BaseModel]:
    """Return the model of a row: ``c0``, ``c1`` and so on, with the names of the columns as aliases."""
    return create_model("Row", **{f"c{k}": _cell(column) for k, column in enumerate(columns.all)})


def _cell(column: Column) -> Any:
    """Return the type of a cell, and what a client should know about it."""
    about: dict[str, Any] = {"alias": column.name, "description": column.description}
    if column.kind == "unused":
        return Any, Field(None, **about)
    kind: Any = str
    if column.kind == "date":
        kind = Annotated[str, AfterValidator(column.date)]
    elif column.kind != "text":
        kind = Annotated[float, BeforeValidator(_no_text), Field(allow_inf_nan=False)]
    examples = list(column.categories[:MAX_SHOWN]) or [column.example]
    return kind | None if column.nullable else kind, Field(examples=examples, **about)


def _no_text(cell: Any) -> Any:
    """Refuse numbers in quotes, which pydantic reads; true and false count as 1 and 0."""
    if isinstance(cell, str):
        raise ValueError("Input should be a number")
    return cell


def request_model(row: Any, max_rows: int) -> Any:
    """Return the model of a request: options, and rows of which the first wrong one ends the check."""
    rows = Annotated[list[row], FailFast(), Field(min_length=1, max_length=max_rows)]
    return create_model("Asked", __base__=Options, rows=(rows, ...))


def read_request(model: Any, body: bytes) -> tuple[list[list[Any]], Options]:
    """Return the cells of each row, and the options; an error has all problems of the first wrong row."""
    try:
        asked = model.model_validate_json(body)
    except ValidationError as error:
        lines = error.errors(include_url=False)
        problems = [_problem(line) for line in lines[:MAX_SHOWN]]
        first = problems[0]
        row = [] if first.row is None else [f"row {first.row}"]
        where = [*row, *([] if first.column is None else [f"column {first.column!r}"])]
        refusal = Refusal(error=" ".join([", ".join(where), first.problem]).strip(), problems=problems)
        raise HTTPException(STATUS.get(lines[0]["type"], 422), refusal) from None  # type: ignore[arg-type]
    options = Options.model_construct(**asked.model_dump(exclude={"rows"}))
    return [list(vars(row).values()) for row in asked.rows], options


def _problem(line: Mapping[str, Any]) -> Problem:
    """Return what pydantic says about a row, a cell or an option."""
    place, value = line["loc"], line["input"]
    text = str(line["ctx"]["error"] if line["type"] == "value_error" else line["msg"])
    if place[:1] != ("rows",) or len(place) == 1:
        names = [str(part)[:80] for part in place]
        if line["type"] == "extra_forbidden":
            text = f"unknown field{nearest(names[0], ['rows', *Options.model_fields])}"
        return Problem(problem=": ".join([*names, text]))
    name = None if len(place) == 2 else str(place[2])
    if line["type"] == "missing":
        like = get_close_matches(str(name), [key[:80] for key in islice(value, 200)], n=1)
        text = f"is not in the row{f'; did you mean {like[0]!r}?' if like else ': give a value, or null'}"
    elif value is None:
        text = "is null, and was never missing in training: give a value"
    else:
        text = f"is {shown_cell(value)}: {text}"
    return Problem(row=place[1], column=name, problem=text)


# -- predictions -----------------------------------------------------------------------------------


class _Job(NamedTuple):
    answer: asyncio.Future[list[Any]]
    rows: Sequence[Any]
    options: Any


class Batcher:
    """Predicts waiting requests together: a model predicts a hundred rows nearly as fast as one.

    Calls ``predict(rows, options)`` in a thread, once for all waiting rows with equal options. A batch ends
    with the request that brings it to `max_rows`. The caller limits how many requests wait.

    >>> batcher = Batcher(lambda rows, factor: [factor * row for row in rows], max_rows=10)
    >>> asyncio.run(batcher([1, 2], 3))
    [3, 6]
    """

    def __init__(self, predict: Callable[[Sequence[Any], Any], Sequence[Any]], *, max_rows: int) -> None:
        self._predict, self._max_rows = predict, max_rows
        self._jobs: list[_Job] = []
        self._one_batch = asyncio.Lock()

    async def __call__(self, rows: Sequence[Any], options: Any) -> list[Any]:
        """Return the predictions of the rows of a request."""
        job = _Job(asyncio.get_running_loop().create_future(), rows, options)
        self._jobs.append(job)
        try:
            async with self._one_batch:
                if not job.answer.done():  # not in the batch of a request that came before
                    await self._answer(self._like(job))
        finally:
            self._jobs.remove(job)
        return await job.answer

    def _like(self, first: _Job) -> list[_Job]:
        """Return the waiting requests that can be predicted with this one."""
        jobs, rows = [first], len(first.rows)
        for job in self._jobs:
            if job is not first and not job.answer.done() and job.options == first.options:
                if rows >= self._max_rows:
                    break
                jobs.append(job)
                rows += len(job.rows)
        return jobs

    async def _answer(self, jobs: Sequence[_Job]) -> None:
        """Predict all rows at once; if that fails, each request alone, so that none spoils the others."""
        rows = [row for job in jobs for row in job.rows]
        try:
            predictions = iter(await asyncio.to_thread(self._predict, rows, jobs[0].options))
        except Exception as error:
            if len(jobs) == 1:
                jobs[0].answer.set_exception(error)
            else:
                for job in jobs:
                    await self._answer([job])
            return
        for job in jobs:
            job.answer.set_result(list(islice(predictions, len(job.rows))))


def _as_rows(predicted: Predicted, options: Options) -> list[dict[str, Any]]:
    """Return the predictions of one target, a mapping for each row."""
    columns = predicted.columns(options.coverage, options.rare)
    if options.quantiles:
        levels = predicted.quantiles(options.quantiles).T
        names = [f"{level:g}" for level in options.quantiles]
        columns["quantiles"] = np.array([dict(zip(names, row, strict=True)) for row in levels.tolist()])
    cells = [column.tolist() for column in columns.values()]
    return [dict(zip(columns, row, strict=True)) for row in zip(*cells, strict=True)]


# -- the server ------------------------------------------------------------------------------------


class Service:
    """One model behind HTTP. `app` is an ASGI application that any server can run."""

    def __init__(self, model: TailRegressor, *, title: str = "model", limits: Limits | None = None) -> None:
        self.model, self.title, self.limits = model, title, limits or Limits()
        self.columns = Columns.of(model)
        self.row = row_model(self.columns)
        self.asked = request_model(self.row, self.limits.max_rows)
        self.targets = [str(model.model_.target_name(t)) for t in range(model.n_targets_)]
        self.waiting = self.answers = 0
        registry = self.registry = CollectorRegistry()
        self._requests = Counter("tailwise_requests", "Answers of /predict.", ["status"], registry=registry)
        self._seconds = Histogram("tailwise_request_seconds", "Time to an answer.", registry=registry)
        self._rows = Counter("tailwise_rows", "Rows predicted.", registry=registry)
        self._batches = Counter("tailwise_batches", "Calls of the model.", registry=registry)
        queue = Gauge("tailwise_queue_requests", "Requests that are not answered yet.", registry=registry)
        queue.set_function(lambda: self.waiting)
        try:  # what is not installed, or cannot be predicted, is found at the start
            self._predict([self.columns.example_cells], Options())
        except ValueError as error:
            raise ValueError(f"the model cannot predict its example row: {error}") from error
        self.batcher = Batcher(self._predict, max_rows=self.limits.max_rows)
        self.app = self._application()

    @property
    def example(self) -> dict[str, Any]:
        """A request that the model can answer."""
        return {"rows": [self.columns.example], "coverage": COVERAGE, "quantiles": [0.05, 0.5, 0.95]}

    def _application(self) -> FastAPI:
        app = FastAPI(
            title=f"tailwise: {self.title}",
            version=__version__,
            description="Predictions with intervals. The page about it is at /docs.",
            docs_url=None,  # its page would load scripts from another server
            redoc_url=None,
        )
        schema = self.asked.model_json_schema()
        del schema["$defs"]  # references to them mean nothing inside a page of OpenAPI
        schema["properties"]["rows"]["items"] = self.row.model_json_schema()
        body = {"schema": schema, "example": self.example}
        responses: dict[int | str, dict[str, Any]] = {200: {"model": Answer}}
        responses |= {status: {"description": text, "model": Refusal} for status, text in REFUSALS.items()}

        @app.exception_handler(HTTPException)
        async def refuse(_: Request, error: HTTPException) -> Response:
            detail: Any = error.detail
            refusal = detail if isinstance(detail, Refusal) else Refusal(error=str(detail))
            return Response(refusal.model_dump_json(), error.status_code, error.headers, "application/json")

        @app.post(
            "/predict",
            summary="Predict rows, with intervals",
            responses=responses,
            openapi_extra={"requestBody": {"required": True, "content": {"application/json": body}}},
        )
        async def predict(request: Request) -> Response:
            with self._seconds.time():
                try:
                    answer = Response(await self._answer(request), media_type="application/json")
                    self.answers += 1
                except HTTPException as error:
                    answer = await refuse(request, error)
                except Exception as error:
                    unexpected = f"unexpected {type(error).__name__}: please report it"
                    answer = await refuse(request, HTTPException(500, unexpected))
            self._requests.labels(answer.status_code).inc()
            return answer

        @app.get("/health", summary="Whether the server answers")
        async def health() -> dict[str, Any]:
            most = self.limits.max_waiting
            return {"status": "ok", "model": self.title, "waiting": self.waiting, "limit": most}

        @app.get("/metrics", summary="Figures for Prometheus", response_class=PlainTextResponse)
        async def metrics() -> str:
            return generate_latest(self.registry).decode()

        @app.get("/schema", summary="JSON schema of a row")
        async def row_schema() -> dict[str, Any]:
            return self.row.model_json_schema()

        @app.get("/", include_in_schema=False, response_class=HTMLResponse)
        @app.get("/docs", include_in_schema=False, response_class=HTMLResponse)
        async def page() -> str:
            templates = Environment(
                loader=PackageLoader("tailwise.serving"), autoescape=True, trim_blocks=True
            )
            example = json.dumps(self.example, indent=2, ensure_ascii=False)
            about = {"version": __version__, "columns": self.columns.all, "example": example}
            return templates.get_template("server.html").render({**vars(self), **about})

        return app

    async def _answer(self, request: Request) -> bytes:
        if self.waiting >= self.limits.max_waiting:
            busy = f"busy: {self.waiting} requests wait; try again in {RETRY_SECONDS} s"
            raise HTTPException(503, busy, headers={"Retry-After": str(RETRY_SECONDS)})
        self.waiting += 1
        try:
            rows, options = read_request(self.asked, await self._body(request))
            predictions = await self.batcher(rows, options)
        except ValueError as error:
            raise HTTPException(422, " ".join(str(error).split())) from None
        finally:
            self.waiting -= 1
        answer = {
            "predictions": predictions,
            "coverage": options.coverage,
            "rare": options.rare,
            "emphasis": self.model.emphasis_ if options.emphasis is None else options.emphasis,
            "notes": self._notes(rows, options),
        }
        return to_json(answer, inf_nan_mode="null")

    async def _body(self, request: Request) -> bytes:
        """Return the body of a request; one that is too large or too slow is refused."""
        most, seconds = self.limits.max_body, self.limits.body_seconds
        body = bytearray()
        try:
            async with asyncio.timeout(seconds):
                async for part in request.stream():
                    body += part
                    if len(body) > most:
                        raise HTTPException(413, f"the body is larger than {most} bytes: send fewer rows")
        except TimeoutError:
            raise HTTPException(408, f"the body took over {seconds:g} s") from None
        except ClientDisconnect:
            raise HTTPException(400, "the client left before its body was complete") from None
        return bytes(body)

    def _notes(self, rows: Sequence[Sequence[Any]], options: Options) -> list[str]:
        """Say which cells training did not have, and why intervals span all training labels."""
        cells = zip(self.columns.all, zip(*rows, strict=True), strict=True)
        notes = [note for column, values in cells for note in column.notes(values)][:MAX_SHOWN]
        intervals = [target.intervals for target in self.model.model_.targets]
        few = [missing for i in intervals if (missing := i.too_few(options.coverage, options.rare))]
        return notes + [f"{text} The intervals span all training labels instead." for text in few[:1]]

    def _predict(self, rows: Sequence[Sequence[Any]], options: Options) -> list[dict[str, Any]]:
        """Return the predictions of rows, by target if there are several."""
        table, model = self.columns.table(rows), self.model.model_.at(options.emphasis)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # notes say what a client should know
            targets = [_as_rows(target, options) for target in model.predicted(table)]
        self._rows.inc(len(rows))
        self._batches.inc()
        if len(targets) == 1:
            return targets[0]
        return [dict(zip(self.targets, row, strict=True)) for row in zip(*targets, strict=True)]


def listen(host: str, port: int) -> socket.socket:
    """Return a socket that listens; an address that cannot be used is an error that names it."""
    try:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        sock = socket.create_server((host, port), family=family, backlog=MAX_CONNECTIONS)
    except (OSError, OverflowError) as error:
        reason = getattr(error, "strerror", None) or error
        raise ValueError(f"cannot listen on {host} port {port}: {reason}") from None
    # Connections inherit it. Without it, an answer waits 40 ms for the acknowledgement of its headers.
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return sock


def server(service: Service) -> uvicorn.Server:
    """Return a server; its `run` serves until SIGINT or SIGTERM.

    Then requests that were let in are answered, and new connections are refused.
    """
    return uvicorn.Server(
        uvicorn.Config(
            service.app,
            log_level="warning",
            access_log=False,
            server_header=False,
            limit_concurrency=MAX_CONNECTIONS,
            timeout_keep_alive=KEEP_ALIVE_SECONDS,
            timeout_graceful_shutdown=GRACE_SECONDS,
        )
    )
