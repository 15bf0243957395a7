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
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import h11
import uvicorn
from fastapi import FastAPI
from jinja2 import Environment, PackageLoader
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import HTMLResponse, JSONResponse, PlainTextResponse, Response
from starlette.types import ASGIApp, Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol

from tailwise._version import __version__
from tailwise.serving.batches_of_requests import COVERAGE, Answer, Batcher
from tailwise.serving.counters import Counters
from tailwise.serving.openapi import described
from tailwise.serving.row_schema import RefusedRequest

if TYPE_CHECKING:
    from tailwise.estimator import TailRegressor

__all__ = ["Limits", "Service", "listen", "server"]

RETRY_SECONDS = 1
KEEP_ALIVE_SECONDS = 75
"""Idle connections are closed after this time. A client may send its next request just then, and lose it."""
MAX_CONNECTIONS = 1000
"""Connections beyond this many are answered with status 503 as well."""
METHODS = (b"GET ", b"HEAD ", b"POST ", b"PUT ", b"PATCH ", b"DELETE ", b"OPTIONS ", b"TRACE ", b"CONNECT ")
GRACE_SECONDS = 30
"""Time that a server has to answer what it has let in after it was asked to stop."""


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
        self.limits = limits or Limits()
        self.title = title
        self.counters = Counters(__version__)
        self.batcher = Batcher(model, self.counters, max_rows=self.limits.max_rows, threads=threads)
        self.waiting = 0
        self._check()
        self.app = self._application()

    def _check(self) -> None:
        """Predict the example row: what is not installed, or cannot be predicted, is found at the start."""
        body = json.dumps({"rows": [self.batcher.schema.example()]}).encode()
        answer = self.batcher.submit(body).result()
        if answer.status != 200:
            raise ValueError(f"the model cannot predict its example row: {answer.content.decode()}")

    def _application(self) -> FastAPI:
        @asynccontextmanager
        async def lifespan(_: FastAPI) -> AsyncIterator[None]:
            yield
            await asyncio.to_thread(self.batcher.close)

        app = FastAPI(
            title=f"tailwise: {self.title}",
            version=__version__,
            description="Predictions with intervals. The page about it is at /docs.",
            docs_url=None,  # its page would load scripts from another server
            redoc_url=None,
            lifespan=lifespan,
        )

        @app.exception_handler(HTTPException)
        async def refuse(_: Request, error: HTTPException) -> Response:
            return JSONResponse(
                {"error": str(error.detail), "problems": []}, error.status_code, error.headers
            )

        @app.post(
            "/predict",
            summary="Predict rows, with intervals",
            response_model=None,
            openapi_extra=described(self.batcher.schema, self.batcher.targets, self.limits.max_rows),
        )
        async def predict(request: Request) -> Response:
            began = time.perf_counter()
            answer = await self._answer(request)
            self.counters.answered(answer.status, time.perf_counter() - began)
            late = {"Retry-After": str(RETRY_SECONDS)} if answer.status == 503 else None
            return Response(answer.content, answer.status, late, "application/json")

        @app.get("/health", summary="Whether the server answers")
        async def health() -> dict[str, Any]:
            most = self.limits.max_waiting
            return {"status": "ok", "model": self.title, "waiting": self.waiting, "limit": most}

        @app.get("/metrics", summary="Figures for Prometheus", response_class=PlainTextResponse)
        async def metrics() -> str:
            return self.counters.text(self.waiting, self.limits.max_waiting)

        @app.get("/schema", summary="JSON schema of a row")
        async def schema() -> dict[str, Any]:
            return self.batcher.schema.to_json()

        @app.get("/", include_in_schema=False, response_class=HTMLResponse)
        @app.get("/docs", include_in_schema=False, response_class=HTMLResponse)
        async def page() -> str:
            return self._page()

        app.add_middleware(_HeadAsGet)
        return app

    async def _answer(self, request: Request) -> Answer:
        if self.waiting >= self.limits.max_waiting:
            busy = f"busy: {self.waiting} requests wait; try again in {RETRY_SECONDS} s"
            return Answer.refusal(RefusedRequest(503, busy))
        self.waiting += 1
        try:
            body = await self._body(request)
            return await asyncio.wrap_future(self.batcher.submit(body))
        except RefusedRequest as error:
            return Answer.refusal(error)
        except Exception as error:
            kind = type(error).__name__
            return Answer.refusal(RefusedRequest(500, f"unexpected {kind}: please report it"))
        finally:
            self.waiting -= 1

    async def _body(self, request: Request) -> bytes:
        """Return the body of a request; one that is too large, too slow or of another kind is refused."""
        most = self.limits.max_body
        kind = request.headers.get("content-type", "application/json").partition(";")[0].strip().lower()
        if kind != "application/json":
            raise RefusedRequest(415, f"the body is {kind[:80]}: send application/json")
        length = request.headers.get("content-length", "")
        parts, size = [], int(length) if length.isdecimal() else 0
        try:
            async with asyncio.timeout(self.limits.body_seconds):
                if size <= most:
                    size = 0
                    async for part in request.stream():
                        size += len(part)
                        if size > most:
                            break
                        parts.append(part)
        except TimeoutError:
            raise RefusedRequest(408, f"the body took over {self.limits.body_seconds:g} s") from None
        except ClientDisconnect:
            raise RefusedRequest(400, "the client left before its body was complete") from None
        if size > most:
            raise RefusedRequest(413, f"the body is larger than {most} bytes: send fewer rows")
        return b"".join(parts)

    def _page(self) -> str:
        templates = Environment(loader=PackageLoader("tailwise.serving"), autoescape=True, trim_blocks=True)
        example = {
            "rows": [self.batcher.schema.example()],
            "coverage": COVERAGE,
            "quantiles": [0.05, 0.5, 0.95],
        }
        return templates.get_template("server.html").render(
            title=self.title,
            version=__version__,
            limits=self.limits,
            targets=self.batcher.targets,
            columns=self.batcher.schema.columns,
            example=json.dumps(example, indent=2, ensure_ascii=False),
        )


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
            lifespan="on",
        )
    )
