"""The command in a process of its own, which begins as a copy of one that has imported it.

So a test sees a real process (its folder, environment, streams or terminal, signals, exit status)
without the half second that each would take to import the package.
"""

from __future__ import annotations

import atexit
import json
import os
import select
import signal
import subprocess
import sys
import tempfile
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent
SECONDS = 150.0
HOME = tempfile.TemporaryDirectory()  # for sessions and history, unless a test has its own
SERVER = """
import json, os, runpy, sys
import anyio._backends._asyncio, httpx
import agentloop.cli.main, agentloop.models.openai

waiting = []
for line in sys.stdin:
    asked = json.loads(line)
    waiting = [pid for pid in waiting if not os.waitpid(pid, os.WNOHANG)[0]]
    if pid := os.fork():
        waiting.append(pid)
        continue
    report = open(asked["report"], "w")
    if pid := os.fork():
        print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), file=report, flush=True)
        os._exit(0)
    os.setsid()  # a terminal that it opens is its own
    os.chdir(asked["cwd"])
    os.environ.clear()
    os.environ.update(asked["env"])
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        opened = os.open(asked[name], os.O_RDWR)
        os.dup2(opened, number)
        os.close(opened)
        file = open(number, "w" if number else "r", encoding="utf-8", closefd=False)
        setattr(sys, name, file)
    print(os.getpid(), file=report)
    report.close()
    sys.path[0] = ""
    sys.argv = ["agentloop", *asked["arguments"]]
    runpy.run_module("agentloop", run_name="__main__", alter_sys=True)
"""


def environment(**more: str) -> dict[str, str]:
    """This one's environment without a key, a server, or settings of a terminal."""
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("OPENAI", "ANTHROPIC", "GOOGLE", "GEMINI", "PYTEST"))
        and name not in ("COLUMNS", "NO_COLOR")
    }
    return (
        kept
        | {"PYTHONPATH": str(ROOT), "PYTHONUTF8": "1", "TERM": "xterm", "HOME": HOME.name}
        | more
    )


@cache
def _server() -> subprocess.Popen[str]:
    server = subprocess.Popen(
        [sys.executable, "-c", SERVER],
        cwd=ROOT,
        env=environment(),
        stdin=subprocess.PIPE,
        text=True,
    )
    atexit.register(server.communicate)  # it ends with its input
    return server


class Process:
    """`agentloop` with these arguments; `streams` are paths, of files or of a terminal."""

    def __init__(self, *arguments: str, cwd: Path, streams: list[str], env: dict[str, str]):
        self.returncode: int | None = None
        with tempfile.TemporaryDirectory() as folder:
            report = str(Path(folder, "report"))
            os.mkfifo(report)
            asked = {"arguments": arguments, "cwd": str(cwd), "env": env, "report": report}
            asked |= dict(zip(("stdin", "stdout", "stderr"), streams, strict=True))
            server = _server()
            server.stdin.write(json.dumps(asked) + "\n")
            server.stdin.flush()
            self._report = open(report, "rb", buffering=0)  # noqa: SIM115
            self.pid = int(self._report.readline())

    def wait(self, seconds: float = SECONDS) -> int | None:
        """Its exit status, or None while it goes on."""
        if self.returncode is None and select.select([self._report], [], [], seconds)[0]:
            self.returncode = int(self._report.readline())
            self._report.close()
        return self.returncode

    def kill(self) -> None:
        os.kill(self.pid, signal.SIGKILL)


def run(
    *arguments: str, cwd: Path, stdin: str = "", **env: str
) -> subprocess.CompletedProcess[str]:
    """Run `agentloop` with these arguments to its end."""
    with tempfile.TemporaryDirectory() as folder:
        files = [Path(folder, name) for name in ("stdin", "stdout", "stderr")]
        for file, text in zip(files, (stdin, "", ""), strict=True):
            file.write_text(text, encoding="utf-8")
        process = Process(
            *arguments, cwd=cwd, streams=[str(file) for file in files], env=environment(**env)
        )
        status = process.wait()
        assert status is not None
        out, err = (file.read_text(encoding="utf-8") for file in files[1:])
    return subprocess.CompletedProcess(arguments, status, out, err)
