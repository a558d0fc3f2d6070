"""Starts the web app: its address, its token and its messages.

Loopback is the default; any other address gets a token and a warning. Owns the socket, so that an occupied port is one clear
message, and port 0 means any free port.
"""

from __future__ import annotations

import logging
import secrets
import socket
from collections.abc import Callable
from typing import Protocol, runtime_checkable

import uvicorn
from starlette.applications import Starlette

from normscope.errors import InputError
from normscope.explorer.security import is_loopback

_MOST_CONNECTIONS = 512


@runtime_checkable
class Served(Protocol):
    """An application that can be protected for an address."""

    def starlette(self, *, host: str, token: str | None) -> Starlette: ...

    def end(self) -> None:
        """Disconnect all clients that wait, since the server is about to end."""


def serve(
    web: Served,
    *,
    what: str,
    host: str = "127.0.0.1",
    port: int = 8311,
    say: Callable[[str], None] = print,
) -> None:
    """Serve an application of the explorer until interrupted; `what` names what it shows."""
    listening = _listen(host, port)
    token = None if is_loopback(host) else secrets.token_urlsafe(24)
    app = web.starlette(host=host, token=token)
    if token is not None:
        say(
            f"Warning: {host} can be reached by other machines, without encryption. Whoever has the address below, with "
            "its token, can run analyses here. Prefer the default (127.0.0.1) and an SSH tunnel."
        )
    say(f"Serving {what} at {_address(host, listening, token)} (Ctrl-C ends it)")
    config = uvicorn.Config(
        app,
        log_level="warning",
        access_log=False,
        server_header=False,
        limit_concurrency=_MOST_CONNECTIONS,
        timeout_graceful_shutdown=2,
        ws="none",
    )
    _Server(config, web.end).run(sockets=[listening])


class _Server(uvicorn.Server):
    """A server that disconnects its clients when it is interrupted, and then ends without messages."""

    def __init__(self, config: uvicorn.Config, end: Callable[[], None]) -> None:
        super().__init__(config)
        self._end = end

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._end()
        logging.getLogger("uvicorn.error").setLevel(logging.CRITICAL)  # interrupted requests are not errors now
        await super().shutdown(sockets)


def _listen(host: str, port: int) -> socket.socket:
    try:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        return socket.create_server((host, port), family=family)
    except (OSError, OverflowError) as error:
        reason = getattr(error, "strerror", None) or error
        raise InputError(f"Cannot listen on {host} port {port}: {reason}. Choose another with --port.") from error


def _address(host: str, listening: socket.socket, token: str | None) -> str:
    port = listening.getsockname()[1]
    name = f"[{host}]" if ":" in host else host
    return f"http://{name}:{port}/" + ("" if token is None else f"?token={token}")
