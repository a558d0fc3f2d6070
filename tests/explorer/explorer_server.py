"""The web app in a thread, for tests that ask it something."""

from __future__ import annotations

import json
import socket
import threading
import time
from typing import Any

import httpx2
import uvicorn

TEXT = "The chef opened a restaurant."


class Running:
    """A server in a thread."""

    def __init__(self, app: Any) -> None:
        self.socket = socket.create_server(("127.0.0.1", 0))
        self.host = f"127.0.0.1:{self.socket.getsockname()[1]}"
        self.url = f"http://{self.host}"
        config = uvicorn.Config(app, log_level="warning", ws="none", timeout_graceful_shutdown=1)
        self.server = uvicorn.Server(config)
        self.thread = threading.Thread(target=self.server.run, args=([self.socket],))
        self.thread.start()
        while not self.server.started:
            time.sleep(0.01)

    def client(self, **headers: str) -> httpx2.Client:
        return httpx2.Client(base_url=self.url, headers=headers, timeout=30)

    def stop(self) -> None:
        self.server.should_exit = True
        self.thread.join()
        self.socket.close()


def submit(client: httpx2.Client, text: Any = TEXT, **more: Any) -> httpx2.Response:
    return client.post("/api/jobs", json={"analyses": [{"text": text}], **more})


def follow(client: httpx2.Client, job: str) -> list[dict[str, Any]]:
    """Every status of a job until its last, which is not waited for for ever."""
    deadline = time.monotonic() + 120
    told: list[dict[str, Any]] = []
    with client.stream("GET", f"/api/jobs/{job}/events") as answer:
        for line in answer.iter_lines():
            assert time.monotonic() < deadline, told
            if line.startswith("data: "):
                told.append(json.loads(line.removeprefix("data: ")))
    return told
