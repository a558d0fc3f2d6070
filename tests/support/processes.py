"""Programs in processes of their own that have imported torch and transformers already, and nothing of normscope.

These imports take several seconds of every process that loads a model. One process does them once, and forks for every
program, which then runs as `python -c` would run it.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO

_SERVER = """
import json, os, sys, traceback
import transformers
transformers.AutoModel, transformers.BertModel

def run(program, arguments, folder, environment, out, err):
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    for stream, path in ((1, out), (2, err)):
        os.dup2(os.open(path, os.O_WRONLY), stream)
    os.chdir(folder)
    os.environ.update(environment)
    sys.argv = ["-c", *arguments]
    exec(compile(program, "<string>", "exec"), {"__name__": "__main__"})

for line in sys.stdin:
    child = os.fork()
    if child == 0:
        code = 0
        try:
            run(**json.loads(line))
        except SystemExit as end:
            code = end.code if isinstance(end.code, int) else int(end.code is not None)
        except BaseException:
            traceback.print_exc()
            code = 1
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
"""


class Processes:
    """Starts programs in forks of one process."""

    def __init__(self, requests: IO[str], codes: IO[str]) -> None:
        self._requests, self._codes = requests, codes

    def run(
        self, program: str, *arguments: str, cwd: Path | None = None, env: Mapping[str, str] | None = None
    ) -> subprocess.CompletedProcess[str]:
        """Run a program to its end; `env` is added to the environment."""
        with tempfile.TemporaryDirectory() as folder:
            out, err = (Path(folder) / name for name in ("out", "err"))
            out.touch()
            err.touch()
            request = {
                "program": program,
                "arguments": arguments,
                "folder": str(cwd or Path.cwd()),
                "environment": dict(env or {}),
                "out": str(out),
                "err": str(err),
            }
            print(json.dumps(request), file=self._requests, flush=True)
            code = int(self._codes.readline())
            texts = (path.read_text(encoding="utf-8") for path in (out, err))
            return subprocess.CompletedProcess(["-c", program, *arguments], code, *texts)


@contextmanager
def prepared_processes() -> Iterator[Processes]:
    """Processes that start fast, as long as the block lasts."""
    with subprocess.Popen(
        [sys.executable, "-c", _SERVER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as server:
        assert server.stdin is not None and server.stdout is not None
        yield Processes(server.stdin, server.stdout)
        server.stdin.close()
