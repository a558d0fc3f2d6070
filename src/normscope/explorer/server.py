"""The explorer as a local web app: type a text, watch its analysis come, look at it.

Owns the routes and what their requests may say; `guard` decides who may ask, `jobs` when an analysis runs. The models are
those given at the start, and no request can name a file.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import asdict, dataclass
from typing import Any, cast

from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from normscope.analysis import Analysis
from normscope.analyzer import Analyzer
from normscope.errors import InputError, NormscopeError
from normscope.explorer.guard import Guard, Rules
from normscope.explorer.jobs import Job, Queue, QueueFull
from normscope.explorer.page import bundle, shell
from normscope.explorer.payload import MOST_ANALYSES, exact_map
from normscope.explorer.work import Order, Result, analyse

_TITLE = "normscope"


@dataclass(frozen=True)
class Limits:
    """How much one request, and all together, may ask for; `kept` bytes of finished analyses stay in memory."""

    characters: int = 20_000
    tokens: int = 512
    waiting: int = 64
    kept: int = 512 * 2**20
    followers: int = 128
    body: int = 131_072


class WebApp:
    """The routes, over the models that the server was started with."""

    def __init__(self, analyzers: Mapping[str, Analyzer], limits: Limits | None = None) -> None:
        self.limits = limits or Limits()
        self.analyzers = dict(analyzers)
        self.queue = Queue(most_waiting=self.limits.waiting, most_bytes=self.limits.kept)
        self._abandonments: set[asyncio.Task[None]] = set()
        for name, analyzer in self.analyzers.items():
            if analyzer.tokenizer is None or analyzer.family.reads != "text":
                raise InputError(f"{name} cannot be served: the web app sends texts, and this model does not read any.")

    def starlette(self, *, host: str = "127.0.0.1", token: str | None = None) -> Starlette:
        """The application, guarded for an address."""
        rules = Rules(host, token, self.limits.body)
        app = Starlette(
            routes=[
                Route("/", self.home),
                Route("/explorer.js", self.script),
                Route("/api/jobs", self.submit, methods=["POST"]),
                Route("/api/jobs/{id}", self.cancel, methods=["DELETE"]),
                Route("/api/jobs/{id}/events", self.events),
                Route("/api/jobs/{id}/result", self.result),
                Route("/api/jobs/{id}/exact", self.exact),
            ],
            middleware=[Middleware(Guard, rules=rules)],
            lifespan=self._lifespan,
        )
        app.router.redirect_slashes = False
        return app

    @asynccontextmanager
    async def _lifespan(self, _: Starlette) -> AsyncGenerator[None]:
        worker = asyncio.create_task(self.queue.run())
        try:
            yield
        finally:
            for job in list(self.queue.jobs.values()):
                self.queue.cancel(job)
            worker.cancel()
            with suppress(asyncio.CancelledError):
                await worker

    # ---- pages ---------------------------------------------------------------------------------------------------------

    async def home(self, _: Request) -> Response:
        settings = {"models": list(self.analyzers), "characters": self.limits.characters, "tokens": self.limits.tokens}
        data = json.dumps(settings).replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e")
        return HTMLResponse(shell(data, title=_TITLE, script_url="/explorer.js"))

    async def script(self, _: Request) -> Response:
        return Response(bundle(), media_type="text/javascript")

    # ---- jobs ----------------------------------------------------------------------------------------------------------

    async def submit(self, request: Request) -> Response:
        if request.headers.get("content-type", "").partition(";")[0].strip() != "application/json":
            return _error(415, "Send JSON.")
        try:
            orders, heads = self._orders(await self._json(request))
            job = self.queue.submit(lambda job: self._analyze(job, orders, heads=heads))
        except QueueFull as error:
            return _error(429, str(error))
        except InputError as error:
            return _error(422, str(error))
        self._expect_followers(job)
        return JSONResponse({"id": job.id}, status_code=202)

    async def cancel(self, request: Request) -> Response:
        job = self._job(request)
        if job is None:
            return _unknown()
        self.queue.cancel(job)
        return JSONResponse({"stage": job.status.stage})

    async def events(self, request: Request) -> Response:
        job = self._job(request)
        if job is None:
            return _unknown()
        if sum(other.followers for other in self.queue.jobs.values()) >= self.limits.followers:
            return _error(429, "Too many pages are connected to this server.")
        return StreamingResponse(self._events(job), media_type="text/event-stream")

    async def _events(self, job: Job) -> AsyncGenerator[str]:
        try:
            async for status in job.follow():
                yield ": still here\n\n" if status is None else f"data: {json.dumps(asdict(status))}\n\n"
        finally:
            self._expect_followers(job)

    def _expect_followers(self, job: Job) -> None:
        """Give a job up if for a while nobody follows it."""
        task = asyncio.create_task(self.queue.abandon(job))
        self._abandonments.add(task)
        task.add_done_callback(self._abandonments.discard)

    async def result(self, request: Request) -> Response:
        job = self._job(request)
        if job is None or job.result is None:
            return _unknown()
        return Response(job.result.payload, media_type="application/json")

    async def exact(self, request: Request) -> Response:
        """Full precision on demand: one map as float32, row by row."""
        job = self._job(request)
        if job is None or job.result is None:
            return _unknown()
        try:
            values = _exact_values(job.result.analyses, dict(request.query_params))
        except (NormscopeError, KeyError, ValueError, IndexError):
            return _error(404, "There is no such map.")
        return Response(values, media_type="application/octet-stream")

    def _job(self, request: Request) -> Job | None:
        return self.queue.jobs.get(request.path_params["id"])

    # ---- what a request says -------------------------------------------------------------------------------------------

    async def _json(self, request: Request) -> dict[str, Any]:
        body = b""
        async for chunk in request.stream():
            body += chunk
            if len(body) > self.limits.body:
                raise InputError(f"The request is too large: at most {self.limits.body} bytes.")
        try:
            content = json.loads(body)
        except (ValueError, RecursionError) as error:
            raise InputError("The request is not JSON.") from error
        if not isinstance(content, dict):
            raise InputError("The request must be a JSON object.")
        return cast("dict[str, Any]", content)

    def _orders(self, content: dict[str, Any]) -> tuple[list[Order], bool]:
        asked, heads = content.get("analyses"), content.get("heads", False)
        if not isinstance(asked, list) or not 1 <= len(cast("list[Any]", asked)) <= MOST_ANALYSES:
            raise InputError(f"Ask for one analysis, or {MOST_ANALYSES} to compare.")
        if not isinstance(heads, bool):
            raise InputError("'heads' is true or false.")
        return [self._order(item) for item in cast("list[Any]", asked)], heads

    def _order(self, item: Any) -> Order:
        entry = cast("dict[str, Any]", item) if isinstance(item, dict) else {}
        text, model = entry.get("text"), entry.get("model", next(iter(self.analyzers)))
        if not isinstance(text, str) or not text.strip():
            raise InputError("The text is empty. Type at least one word.")
        if len(text) > self.limits.characters:
            raise InputError(
                f"The text has {len(text)} characters, and this server takes at most {self.limits.characters}."
            )
        if not isinstance(model, str) or model not in self.analyzers:
            raise InputError("This server does not have that model: choose one of those it was started with.")
        try:
            text.encode()
        except UnicodeEncodeError as error:
            raise InputError("The text contains half a character (a lone surrogate), which is no text.") from error
        return Order(self.analyzers[model], text)

    # ---- work (in the queue's thread) ----------------------------------------------------------------------------------

    def _analyze(self, job: Job, orders: list[Order], *, heads: bool) -> Result:
        return analyse(
            orders,
            heads=heads,
            most_tokens=self.limits.tokens,
            tell=job.progress,
            cancelled=lambda: job.cancelled,
        )


def _exact_values(analyses: list[Analysis], asked: dict[str, str]) -> bytes:
    analysis = analyses[int(asked["analysis"])]
    if asked.get("encoder") == "true":
        analysis = analysis.encoder
    head = int(asked.get("head", "0"))
    return exact_map(analysis, asked["scope"], int(asked["layer"]), head or None).tobytes()


def _error(status: int, message: str) -> Response:
    return JSONResponse({"error": message}, status_code=status)


def _unknown() -> Response:
    return _error(404, "That analysis is not here (any more): ask for it again.")
