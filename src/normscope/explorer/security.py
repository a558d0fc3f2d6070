"""Checks every request first: for this host, from this page, with the token, and not too large.

Also the headers of every response. A local server is reachable by every page a browser shows, so none of this is optional.
"""

from __future__ import annotations

import ipaddress
import secrets
from contextlib import suppress
from dataclasses import dataclass
from http.cookies import CookieError, SimpleCookie

from starlette.datastructures import URL, Headers, MutableHeaders, QueryParams
from starlette.requests import ClientDisconnect
from starlette.responses import JSONResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

COOKIE = "normscope_token"
_OWN = ("same-origin", "none")
_HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; connect-src 'self'; img-src data: blob:; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cache-Control": "no-store",
}


def is_loopback(host: str) -> bool:
    """Whether an address can be reached from this machine only."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host.lower() == "localhost"


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


@dataclass(frozen=True)
class Rules:
    """Who has access. Without a token, only loopback names are served; with one, also `host` and plain addresses.

    A name that only resolves to this machine (DNS rebinding) is never one of these.
    """

    host: str
    token: str | None
    largest_body: int

    def knows_host(self, header: str) -> bool:
        name = _host_name(header)
        if is_loopback(name):
            return True
        return self.token is not None and (name == self.host.lower() or _is_address(name))

    def has_token(self, headers: Headers) -> bool:
        if self.token is None:
            return True
        given = headers.get("authorization", "").removeprefix("Bearer ") or _cookie(headers)
        return secrets.compare_digest(given.encode(), self.token.encode())


def _host_name(header: str) -> str:
    try:
        return (URL(f"http://{header}").hostname or "").lower()
    except ValueError:
        return ""


def _cookie(headers: Headers) -> str:
    try:
        cookie = SimpleCookie(headers.get("cookie", ""))
    except CookieError:
        return ""
    return cookie[COOKIE].value if COOKIE in cookie else ""


class Guard:
    """The middleware that applies the rules."""

    def __init__(self, app: ASGIApp, rules: Rules) -> None:
        self.app, self.rules = app, rules

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            if scope["type"] == "lifespan":
                await self.app(scope, receive, send)
            return

        async def send_guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in _HEADERS.items():
                    headers[name] = value
            await send(message)

        answer = self._refusal(scope) or self._entry(scope)
        # A client that disconnects during a request gets no response, which is not an error.
        with suppress(ClientDisconnect):
            await (answer or self.app)(scope, receive, send_guarded)

    def _refusal(self, scope: Scope) -> Response | None:
        headers, path = Headers(scope=scope), scope["path"]
        host = headers.get("host", "")
        if not self.rules.knows_host(host):
            return _refuse(421, "This server does not answer to that host name.")
        origin = headers.get("origin")
        if origin is not None and origin not in (f"http://{host}", f"https://{host}"):
            return _refuse(403, "Requests from other pages are refused.")
        enters = path == "/" and scope["method"] == "GET" and headers.get("sec-fetch-mode", "navigate") == "navigate"
        if not enters and headers.get("sec-fetch-site", "none") not in _OWN:
            return _refuse(403, "Requests from other pages are refused.")
        length = headers.get("content-length", "0")
        if not length.isdecimal() or int(length) > self.rules.largest_body:
            return _refuse(413, f"The request is too large: at most {self.rules.largest_body} bytes.")
        return None

    def _entry(self, scope: Scope) -> Response | None:
        """Access with a token: it is in the address printed at the start, and is exchanged for a cookie."""
        if self.rules.token is None or self.rules.has_token(Headers(scope=scope)):
            return None
        given = QueryParams(scope["query_string"]).get("token", "")
        if scope["path"] != "/" or not secrets.compare_digest(given.encode(), self.rules.token.encode()):
            return _refuse(401, "This server needs its token: open the address that it printed when it started.")
        answer = RedirectResponse("/", status_code=303)
        answer.set_cookie(COOKIE, self.rules.token, httponly=True, samesite="strict", path="/")
        return answer


def _refuse(status: int, message: str) -> Response:
    return JSONResponse({"error": message}, status_code=status)
