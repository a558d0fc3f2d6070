"""Ctrl-C ends a server at once and without a traceback, whatever pages it is talking to."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Generator, Iterator
from contextlib import contextmanager

import httpx2
import pytest

_LONG = "The chef opened a restaurant. " * 60


@pytest.fixture
def server() -> Iterator[tuple[subprocess.Popen[str], str]]:
    """A real server process, and its address."""
    command = [sys.executable, "-m", "normscope", "serve", "--port", "0"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    with _interruptible(), subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=environment) as process:
        assert process.stderr is not None
        for line in process.stderr:
            address = re.search(r"http://[^/ ]+", line)
            if address is not None:
                break
        yield process, address[0] if address else ""
        process.kill()


@contextmanager
def _interruptible() -> Generator[None]:
    """Ctrl-C reaches what is started here. A shell that starts the tests in the background has all of them ignore it."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def interrupted(process: subprocess.Popen[str]) -> tuple[int, str]:
    """How a process ends that gets Ctrl-C: its exit code, and what it says."""
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=120)
    return process.returncode, said


def test_a_server_is_interrupted_while_a_page_follows_a_job(server: tuple[subprocess.Popen[str], str]) -> None:
    process, address = server
    with httpx2.Client(base_url=address, timeout=120) as client:
        asked = client.post("/api/jobs", json={"analyses": [{"text": _LONG}], "heads": True})
        with client.stream("GET", f"/api/jobs/{asked.json()['id']}/events") as answer:
            lines = answer.iter_lines()
            assert '"running"' in next(line for line in lines if line.startswith("data: ") and "waiting" not in line)
            code, said = interrupted(process)
            told = [line for line in lines if line.startswith("data: ")]
    assert (code, said) == (130, "")
    assert '"cancelled"' in told[-1], "the page is told that nothing more comes"


def test_a_server_is_interrupted_while_a_request_is_only_half_sent(server: tuple[subprocess.Popen[str], str]) -> None:
    process, address = server
    host, _, port = address.removeprefix("http://").partition(":")
    with socket.create_connection((host, int(port))) as connection:
        head = f"POST /api/jobs HTTP/1.1\r\nHost: {host}:{port}\r\nContent-Type: application/json\r\n"
        connection.sendall(f'{head}Content-Length: 1000\r\n\r\n{{"analyses": '.encode())
        time.sleep(0.5)
        code, said = interrupted(process)
    assert (code, said) == (130, "")
