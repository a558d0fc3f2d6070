"""The explorer as a local web app: enter a text, follow the progress of its analysis, explore it.

Owns the routes; `requests` parses their content, `security` decides who has access, and `jobs` when an analysis runs. The
models are those given at the start, and no request can name a file.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import asdict, dataclass
from typing import cast

from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from normscope.analyzer import Analyzer
from normscope.errors import InputError, NormscopeError
from normscope.explorer.jobs import Job, Queue, QueueFull
from normscope.explorer.page import bundle, shell
from normscope.explorer.payload import exact_map
from normscope.explorer.requests import Asking, Order, Pairing, Proof, Question, Reader, check_servable, described
from normscope.explorer.security import Guard, Rules
from normscope.explorer.work import Result, analyse, answer, compare, explain, verify
from normscope.methods import available_methods
from normscope.results.analysis import Analysis
from normscope.results.explanation import Explanation

_TITLE = "normscope"


@dataclass(frozen=True)
class Limits:
    """Limits of one request and of all together; `kept` bytes of finished analyses stay in memory.

    `body` is the largest request in bytes, `image` that of a server with a model that reads images.
    """

    characters: int = 20_000
    tokens: int = 512
    waiting: int = 64
    kept: int = 512 * 2**20
    followers: int = 128
    body: int = 131_072
    image: int = 12 * 2**20


class WebApp:
    """The routes, over the models that the server was started with."""

    def __init__(self, analyzers: Mapping[str, Analyzer], limits: Limits | None = None) -> None:
        self.limits = limits or Limits()
        self.analyzers = dict(analyzers)
        self.queue = Queue(most_waiting=self.limits.waiting, most_bytes=self.limits.kept)
        self._abandonments: set[asyncio.Task[None]] = set()
        for name, analyzer in self.analyzers.items():
            check_servable(name, analyzer)
        images = any(analyzer.family.reads != "text" for analyzer in self.analyzers.values())
        self.largest_body = self.limits.image if images else self.limits.body
        self.reader = Reader(self.analyzers, self.limits.characters)

    def starlette(self, *, host: str = "127.0.0.1", token: str | None = None) -> Starlette:
        """The application, protected for an address."""
        rules = Rules(host, token, self.largest_body)
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
            self.end()
            worker.cancel()
            with suppress(asyncio.CancelledError):
                await worker

    def end(self) -> None:
        """Cancel every job, and notify its followers."""
        for job in list(self.queue.jobs.values()):
            self.queue.cancel(job)

    # ---- pages ---------------------------------------------------------------------------------------------------------

    async def home(self, _: Request) -> Response:
        settings = {
            "models": [described(name, analyzer) for name, analyzer in self.analyzers.items()],
            "methods": [{"name": known.name, "summary": known.summary} for known in available_methods("layer maps")],
            "characters": self.limits.characters,
            "tokens": self.limits.tokens,
        }
        data = json.dumps(settings).replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e")
        return HTMLResponse(shell(data, title=_TITLE, script_url="/explorer.js"))

    async def script(self, _: Request) -> Response:
        return Response(bundle(), media_type="text/javascript")

    # ---- jobs ----------------------------------------------------------------------------------------------------------

    async def submit(self, request: Request) -> Response:
        if request.headers.get("content-type", "").partition(";")[0].strip() != "application/json":
            return _error(415, "Send JSON.")
        try:
            job = self.queue.submit(self._work(await self._json(request)))
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
        """Cancel a job that has no followers for a while."""
        task = asyncio.create_task(self.queue.abandon(job))
        self._abandonments.add(task)
        task.add_done_callback(self._abandonments.discard)

    async def result(self, request: Request) -> Response:
        job = self._job(request)
        if job is None or job.result is None:
            return _unknown()
        return Response(job.result.payload, media_type="application/json")

    async def exact(self, request: Request) -> Response:
        """Full precision on request: one map as float32, row by row."""
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

    async def _json(self, request: Request) -> dict[str, object]:
        body = b""
        async for chunk in request.stream():
            body += chunk
            if len(body) > self.largest_body:
                raise InputError(f"The request is too large: at most {self.largest_body} bytes.")
        try:
            content = json.loads(body)
        except (ValueError, RecursionError) as error:
            raise InputError("The request is not JSON.") from error
        if not isinstance(content, dict):
            raise InputError("The request must be a JSON object.")
        return cast("dict[str, object]", content)

    # ---- work (in the queue's thread) ----------------------------------------------------------------------------------

    def _work(self, content: dict[str, object]) -> Callable[[Job], Result]:
        """The work that a request asks for; raises now if it is not possible."""
        if "explain" in content:
            question = self.reader.question(content)
            return lambda job: self._explain(job, question)
        if "verify" in content:
            proof = self.reader.proof(content)
            explanation = self._explanation(proof)
            return lambda job: self._verify(job, explanation, proof.target)
        if "similarity" in content:
            pairing = self.reader.pairing(content)
            return lambda job: self._compare(job, pairing)
        if "answer" in content:
            asking = self.reader.asking(content)
            return lambda job: self._answer(job, asking)
        orders, heads = self.reader.orders(content)
        return lambda job: self._analyze(job, orders, heads=heads)

    def _analyze(self, job: Job, orders: list[Order], *, heads: bool) -> Result:
        return analyse(
            orders,
            heads=heads,
            most_tokens=self.limits.tokens,
            tell=job.progress,
            cancelled=lambda: job.cancelled,
        )

    def _explain(self, job: Job, question: Question) -> Result:
        return explain(question, most_tokens=self.limits.tokens, tell=job.progress, cancelled=lambda: job.cancelled)

    def _explanation(self, proof: Proof) -> Explanation:
        """An explanation that was made here before."""
        job = self.queue.jobs.get(proof.job)
        known = [] if job is None or job.result is None else job.result.explanations
        if proof.explanation >= len(known):
            raise InputError("That explanation is not here (any more): request it again.")
        return known[proof.explanation]

    def _verify(self, job: Job, explanation: Explanation, target: int) -> Result:
        return verify(explanation, target, tell=job.progress, cancelled=lambda: job.cancelled)

    def _compare(self, job: Job, pairing: Pairing) -> Result:
        return compare(pairing, most_tokens=self.limits.tokens, tell=job.progress, cancelled=lambda: job.cancelled)

    def _answer(self, job: Job, asking: Asking) -> Result:
        return answer(asking, most_tokens=self.limits.tokens, tell=job.progress, cancelled=lambda: job.cancelled)


def _exact_values(analyses: list[Analysis], query: dict[str, str]) -> bytes:
    analysis = analyses[int(query["analysis"])]
    if query.get("encoder") == "true":
        analysis = analysis.encoder
    head = int(query.get("head", "0"))
    return exact_map(analysis, query["scope"], int(query["layer"]), head or None).tobytes()


def _error(status: int, message: str) -> Response:
    return JSONResponse({"error": message}, status_code=status)


def _unknown() -> Response:
    return _error(404, "That analysis is not here (any more): request it again.")
