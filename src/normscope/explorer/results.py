"""Finished results as a local web app: the page requests only what it shows, so that results may have any length.

Owns the routes; `windows` reads the parts, and `security` decides who has access. The results are those given at the start.
"""

from __future__ import annotations

import json
import threading

from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, Response
from starlette.routing import Route

from normscope.errors import InputError, NormscopeError
from normscope.explorer.page import bundle, shell, title
from normscope.explorer.payload import Shown, encoded
from normscope.explorer.security import Guard, Rules
from normscope.explorer.windows import LongResults, Tell

_LARGEST_BODY = 1024


class ResultApp:
    """The routes, over one result or two side by side. The initial payload is computed once, in advance.

    `tell` is called with the number of maps of a long result that are read for it, and their total.
    """

    def __init__(self, *results: Shown, tell: Tell | None = None) -> None:
        self._long = LongResults(*results, served=True)
        self._opening = encoded(self._long.opening(tell=tell)).encode("ascii")
        self._title = title(*results)
        self._reading = threading.Lock()

    def starlette(self, *, host: str = "127.0.0.1", token: str | None = None) -> Starlette:
        """The application, protected for an address."""
        app = Starlette(
            routes=[
                Route("/", self.home),
                Route("/explorer.js", self.script),
                Route("/api/result", self.result),
                Route("/api/window", self.window),
            ],
            middleware=[Middleware(Guard, rules=Rules(host, token, _LARGEST_BODY))],
        )
        app.router.redirect_slashes = False
        return app

    def end(self) -> None:
        """Nothing to end: there are no long requests."""

    async def home(self, _: Request) -> Response:
        return HTMLResponse(shell(json.dumps({}), title=self._title, script_url="/explorer.js", door="result"))

    async def script(self, _: Request) -> Response:
        return Response(bundle(), media_type="text/javascript")

    async def result(self, _: Request) -> Response:
        return Response(self._opening, media_type="application/json")

    def window(self, request: Request) -> Response:
        """One window (in a thread, one at a time: reading takes memory)."""
        query = request.query_params
        try:
            row, column = int(query["row"]), int(query["column"])
        except (KeyError, ValueError):
            return JSONResponse({"error": "A window has a 'row' and a 'column', which are numbers."}, status_code=422)
        try:
            with self._reading:
                content = encoded(self._long.window(query.get("part", "decoder"), row, column))
        except InputError as error:
            return JSONResponse({"error": str(error)}, status_code=404)
        except (NormscopeError, OSError) as error:
            return JSONResponse({"error": f"The result cannot be read (any more): {error}"}, status_code=500)
        return Response(content.encode("ascii"), media_type="application/json")
