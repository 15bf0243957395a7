"""An HTTP server for one model: /predict, /health, /metrics, /schema and a page about them.

Memory is bounded: at most `max_waiting` requests are read and wait, each with a body of at most `max_body`
bytes. A request beyond that is answered at once with status 503 and Retry-After, before its body is read. A
request that was let in is answered, also while the server shuts down.
"""

from __future__ import annotations

import asyncio
import json
import socket
import time
import warnings
from collections.abc import Callable, Hashable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import lru_cache
from itertools import islice
from typing import TYPE_CHECKING, Any, NamedTuple

import h11
import numpy as np
import torch
import uvicorn
from fastapi import FastAPI
from jinja2 import Environment, PackageLoader
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, Info, generate_latest
from pydantic_core import to_json
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import HTMLResponse, PlainTextResponse, Response
from starlette.types import ASGIApp, Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol

from tailwise._version import __version__
from tailwise.serving.columns import Columns
from tailwise.serving.requests import (
    COVERAGE,
    MAX_SHOWN,
    Answer,
    Asked,
    Refusal,
    Refused,
    read_request,
    read_rows,
    request_model,
    row_model,
)

if TYPE_CHECKING:
    from tailwise.calibration.calibration import Predicted
    from tailwise.estimator import TailRegressor

Predict = Callable[[Sequence[Any], Any], Sequence[Any]]


class _Job(NamedTuple):
    answer: asyncio.Future[list[Any]]
    rows: Sequence[Any]
    options: Hashable


class Batcher:
    """Predicts waiting requests together: a model predicts a hundred rows nearly as fast as one.

    Calls ``predict(rows, options)`` in a thread of its own, once for all waiting rows with equal options.

    A batch ends with the request that brings it to `max_rows`. The caller limits how many requests wait.

    >>> batcher = Batcher(lambda rows, factor: [factor * row for row in rows], max_rows=10)
    >>> asyncio.run(batcher([1, 2], 3))
    [3, 6]
    """

    def __init__(self, predict: Predict, *, max_rows: int, threads: int | None = None) -> None:
        self._predict, self._max_rows = predict, max_rows
        self._jobs: list[_Job] = []
        self._task: asyncio.Task[None] | None = None
        begin = (lambda: None) if threads is None else (lambda: torch.set_num_threads(threads))
        self._thread = ThreadPoolExecutor(1, "tailwise-predictions", initializer=begin)

    async def __call__(self, rows: Sequence[Any], options: Hashable) -> list[Any]:
        """Return the predictions of the rows of a request."""
        job = _Job(asyncio.get_running_loop().create_future(), rows, options)
        self._jobs.append(job)
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._run())
        return await job.answer

    async def _run(self) -> None:
        while self._jobs:
            jobs, rest, rows = [], [], 0
            for job in self._jobs:
                if job.options == self._jobs[0].options and rows < self._max_rows:
                    jobs.append(job)
                    rows += len(job.rows)
                else:
                    rest.append(job)
            self._jobs = rest
            await self._answer(jobs)

    async def _answer(self, jobs: Sequence[_Job]) -> None:
        """Predict all rows at once; if that fails, each request alone, so that none spoils the others."""
        rows = [row for job in jobs for row in job.rows]
        call = asyncio.get_running_loop().run_in_executor(self._thread, self._predict, rows, jobs[0].options)
        try:
            predictions = iter(await call)
        except Exception as error:
            if len(jobs) > 1:
                for job in jobs:
                    await self._answer([job])
            elif not jobs[0].answer.done():
                jobs[0].answer.set_exception(error)
            return
        for job in jobs:
            own = list(islice(predictions, len(job.rows)))
            if not job.answer.done():  # nobody waits any more
                job.answer.set_result(own)


__all__ = ["Limits", "Service", "listen", "server"]

RETRY_SECONDS = 1
KEEP_ALIVE_SECONDS = 75
"""Idle connections are closed after this time. A client may send its next request just then, and lose it."""
MAX_CONNECTIONS = 1000
"""Connections beyond this many are answered with status 503 as well."""
METHODS = (b"GET ", b"HEAD ", b"POST ", b"PUT ", b"PATCH ", b"DELETE ", b"OPTIONS ", b"TRACE ", b"CONNECT ")
GRACE_SECONDS = 30
"""Time that a server has to answer what it has let in after it was asked to stop."""
KEPT_EMPHASES = 64
"""Emphases whose intervals are kept; another one is fitted anew in some ten milliseconds."""
BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
"""Upper ends of the histogram of seconds."""
REFUSALS = {
    400: "The body is not JSON.",
    408: "The body took too long.",
    413: "Too many rows, levels or bytes.",
    415: "The body is not application/json.",
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


class _Options(NamedTuple):
    """What a request asks for besides its rows."""

    coverage: float = COVERAGE
    quantiles: tuple[float, ...] = ()
    emphasis: float | None = None
    rare: float | None = None


class _Metrics:
    """Figures for Prometheus."""

    def __init__(self, limits: Limits) -> None:
        registry = self.registry = CollectorRegistry()
        self.requests = Counter("tailwise_requests", "Answers of /predict.", ["status"], registry=registry)
        about = "Time from a request to its answer."
        self.seconds = Histogram("tailwise_request_seconds", about, buckets=BUCKETS, registry=registry)
        self.rows = Counter("tailwise_rows", "Rows predicted.", registry=registry)
        self.batches = Counter("tailwise_batches", "Calls of the model.", registry=registry)
        self.busy = Counter("tailwise_busy_seconds", "Time in the model.", registry=registry)
        about = "Requests that wait or are being answered."
        self.waiting = Gauge("tailwise_queue_requests", about, registry=registry)
        about = "Requests that may wait; others get status 503."
        Gauge("tailwise_queue_limit", about, registry=registry).set(limits.max_waiting)
        Info("tailwise", "Version of tailwise.", registry=registry).info({"version": __version__})


class Service:
    """One model behind HTTP. `app` is an ASGI application that any server can run."""

    def __init__(
        self,
        model: TailRegressor,
        *,
        title: str = "model",
        limits: Limits | None = None,
        threads: int | None = None,
    ) -> None:
        self.model, self.title, self.limits = model, title, limits or Limits()
        self.columns = Columns.of(model)
        self.row = row_model(self.columns)
        self.asked = request_model(self.row, self.limits.max_rows)
        self.targets = [str(model.model_.target_name(t)) for t in range(model.n_targets_)]
        self.waiting = 0
        self.metrics = _Metrics(self.limits)
        self.metrics.waiting.set_function(lambda: self.waiting)
        self._at = lru_cache(KEPT_EMPHASES)(model.model_.at)
        self._check()
        self.batcher = Batcher(self._predict, max_rows=self.limits.max_rows, threads=threads)
        self.app = self._application()

    @property
    def answers(self) -> int:
        """Number of requests with predictions."""
        return int(self.metrics.registry.get_sample_value("tailwise_requests_total", {"status": "200"}) or 0)

    @property
    def example(self) -> dict[str, Any]:
        """A request that the model can answer."""
        return {"rows": [self.columns.example], "coverage": COVERAGE, "quantiles": [0.05, 0.5, 0.95]}

    def _check(self) -> None:
        """Predict the example: what is not installed, or cannot be predicted, is found at the start."""
        try:
            self._predict(read_rows(self.columns, self.row, self.example["rows"]), _Options())
        except ValueError as error:
            raise ValueError(f"the model cannot predict its example row: {error}") from error

    def _application(self) -> FastAPI:
        app = FastAPI(
            title=f"tailwise: {self.title}",
            version=__version__,
            description="Predictions with intervals. The page about it is at /docs.",
            docs_url=None,  # its page would load scripts from another server
            redoc_url=None,
        )
        body = {"schema": self.asked.model_json_schema(), "example": self.example}
        responses: dict[int | str, dict[str, Any]] = {200: {"model": Answer}}
        responses |= {status: {"description": text, "model": Refusal} for status, text in REFUSALS.items()}

        @app.exception_handler(HTTPException)
        async def refuse(_: Request, error: HTTPException) -> Response:
            refusal = Refusal(error=str(error.detail), problems=getattr(error, "problems", []))
            text = refusal.model_dump_json()
            return Response(text, error.status_code, error.headers, "application/json")

        @app.post(
            "/predict",
            summary="Predict rows, with intervals",
            responses=responses,
            openapi_extra={"requestBody": {"required": True, "content": {"application/json": body}}},
        )
        async def predict(request: Request) -> Response:
            began = time.perf_counter()
            try:
                answer = Response(await self._answer(request), media_type="application/json")
            except HTTPException as error:
                answer = await refuse(request, error)
            except Exception as error:
                kind = type(error).__name__
                answer = await refuse(request, Refused(500, f"unexpected {kind}: please report it"))
            self.metrics.requests.labels(answer.status_code).inc()
            self.metrics.seconds.observe(time.perf_counter() - began)
            return answer

        @app.get("/health", summary="Whether the server answers")
        async def health() -> dict[str, Any]:
            most = self.limits.max_waiting
            return {"status": "ok", "model": self.title, "waiting": self.waiting, "limit": most}

        @app.get("/metrics", summary="Figures for Prometheus", response_class=PlainTextResponse)
        async def metrics() -> str:
            return generate_latest(self.metrics.registry).decode()

        @app.get("/schema", summary="JSON schema of a row")
        async def schema() -> dict[str, Any]:
            return self.row.model_json_schema()

        @app.get("/", include_in_schema=False, response_class=HTMLResponse)
        @app.get("/docs", include_in_schema=False, response_class=HTMLResponse)
        async def page() -> str:
            return self._page()

        app.add_middleware(_HeadAsGet)
        return app

    async def _answer(self, request: Request) -> bytes:
        if self.waiting >= self.limits.max_waiting:
            busy = f"busy: {self.waiting} requests wait; try again in {RETRY_SECONDS} s"
            raise Refused(503, busy, headers={"Retry-After": str(RETRY_SECONDS)})
        self.waiting += 1
        try:
            asked = read_request(self.asked, await self._body(request))
            rows = read_rows(self.columns, self.row, asked.rows)
            options = _Options(asked.coverage, tuple(asked.quantiles or ()), asked.emphasis, asked.rare)
            predictions = await self.batcher(rows, options)
        except ValueError as error:
            raise Refused(422, " ".join(str(error).split())) from None
        finally:
            self.waiting -= 1
        answer = {
            "predictions": predictions,
            "coverage": asked.coverage,
            "rare": asked.rare,
            "emphasis": self.model.emphasis_ if asked.emphasis is None else asked.emphasis,
            "notes": self._notes(rows, asked),
        }
        return to_json(answer, inf_nan_mode="null")

    async def _body(self, request: Request) -> bytes:
        """Return the body of a request; one that is too large, too slow or of another kind is refused."""
        most = self.limits.max_body
        kind = request.headers.get("content-type", "application/json").partition(";")[0].strip().lower()
        if kind != "application/json":
            raise Refused(415, f"the body is {kind[:80]}: send application/json")
        body = bytearray()
        try:
            async with asyncio.timeout(self.limits.body_seconds):
                async for part in request.stream():
                    body += part
                    if len(body) > most:
                        raise Refused(413, f"the body is larger than {most} bytes: send fewer rows")
        except TimeoutError:
            raise Refused(408, f"the body took over {self.limits.body_seconds:g} s") from None
        except ClientDisconnect:
            raise Refused(400, "the client left before its body was complete") from None
        return bytes(body)

    def _notes(self, rows: Sequence[Sequence[Any]], asked: Asked) -> list[str]:
        """Say which categories are new, and why intervals span all training labels."""
        cells = zip(self.columns.all, zip(*rows, strict=True), strict=True)
        notes = [note for column, values in cells for note in column.notes(values)][:MAX_SHOWN]
        intervals = [target.intervals for target in self.model.model_.targets]
        few = [missing for i in intervals if (missing := i.too_few(asked.coverage, asked.rare))]
        return notes + [f"{text} The intervals span all training labels instead." for text in few[:1]]

    def _predict(self, rows: Sequence[Sequence[Any]], options: _Options) -> list[dict[str, Any]]:
        """Return the predictions of rows, by target if there are several."""
        began = time.perf_counter()
        names = [column.name for column in self.columns.all]
        table = self.columns.table(dict(zip(names, zip(*rows, strict=True), strict=True)))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # notes say what a client should know
            targets = [_as_rows(target, options) for target in self._at(options.emphasis).predicted(table)]
        self.metrics.rows.inc(len(rows))
        self.metrics.batches.inc()
        self.metrics.busy.inc(time.perf_counter() - began)
        if len(targets) == 1:
            return targets[0]
        return [dict(zip(self.targets, row, strict=True)) for row in zip(*targets, strict=True)]

    def _page(self) -> str:
        templates = Environment(loader=PackageLoader("tailwise.serving"), autoescape=True, trim_blocks=True)
        return templates.get_template("server.html").render(
            title=self.title,
            version=__version__,
            limits=self.limits,
            targets=self.targets,
            columns=self.columns.all,
            example=json.dumps(self.example, indent=2, ensure_ascii=False),
        )


def _as_rows(predicted: Predicted, options: _Options) -> list[dict[str, Any]]:
    """Return the predictions of one target, a mapping for each row."""
    columns = predicted.columns(options.coverage, options.rare)
    if options.quantiles:
        levels = predicted.quantiles(options.quantiles).T
        names = [f"{level:g}" for level in options.quantiles]
        columns["quantiles"] = np.array([dict(zip(names, row, strict=True)) for row in levels.tolist()])
    cells = [column.tolist() for column in columns.values()]
    return [dict(zip(columns, row, strict=True)) for row in zip(*cells, strict=True)]


class _HeadAsGet:
    """Answers HEAD as GET; the server leaves the body out."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope.get("method") == "HEAD":
            scope = {**scope, "method": "GET"}
        await self.app(scope, receive, send)


class _Protocol(H11Protocol):
    """HTTP that refuses bytes which begin no request at once, without waiting for the end of a line."""

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        begun = self.conn.trailing_data[0]
        may_be = any(begun.startswith(name) or name.startswith(begun) for name in METHODS)
        if self.conn.their_state is h11.IDLE and not may_be:
            self.send_400_response("Invalid HTTP request received.")


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
            http=_Protocol,
            log_level="warning",
            access_log=False,
            server_header=False,
            limit_concurrency=MAX_CONNECTIONS,
            timeout_keep_alive=KEEP_ALIVE_SECONDS,
            timeout_graceful_shutdown=GRACE_SECONDS,
        )
    )
