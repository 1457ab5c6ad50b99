"""The command in a process of its own, which begins as a copy of one that has imported it.

So a test sees a real process (its folder, environment, standard streams, exit status) without
the half second that each would take to import the package.
"""

from __future__ import annotations

import atexit
import json
import subprocess
import sys
import tempfile
from functools import cache
from pathlib import Path

from tests.cli.screen import ROOT, environment

SERVER = """
import json, os, runpy, sys
import httpx
import agentloop.cli.main, agentloop.cli.bundle, agentloop.cli.chat, agentloop.cli.demo
import agentloop.cli.replay, agentloop.models.openai

for line in sys.stdin:
    asked = json.loads(line)
    if pid := os.fork():
        _, status = os.waitpid(pid, 0)
        print(os.waitstatus_to_exitcode(status), flush=True)
        continue
    os.chdir(asked["cwd"])
    os.environ.clear()
    os.environ.update(asked["env"])
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        flags = os.O_RDONLY if name == "stdin" else os.O_WRONLY
        os.dup2(os.open(asked[name], flags), number)
        file = open(number, "r" if name == "stdin" else "w", encoding="utf-8", closefd=False)
        setattr(sys, name, file)
    sys.path[0] = ""
    sys.argv = ["agentloop", *asked["arguments"]]
    runpy.run_module("agentloop", run_name="__main__", alter_sys=True)
"""


@cache
def _server() -> subprocess.Popen[str]:
    server = subprocess.Popen(
        [sys.executable, "-c", SERVER],
        cwd=ROOT,
        env=environment(),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    atexit.register(server.communicate)  # it ends with its input
    return server


def run(
    *arguments: str, cwd: Path, stdin: str = "", **env: str
) -> subprocess.CompletedProcess[str]:
    """Run `agentloop` with these arguments to its end."""
    server = _server()
    with tempfile.TemporaryDirectory() as folder:
        files = {name: Path(folder, name) for name in ("stdin", "stdout", "stderr")}
        for file in files.values():
            file.write_text(stdin if file.name == "stdin" else "", encoding="utf-8")
        asked = {"arguments": arguments, "cwd": str(cwd), "env": environment(**env)}
        asked |= {name: str(file) for name, file in files.items()}
        server.stdin.write(json.dumps(asked) + "\n")
        server.stdin.flush()
        status = int(server.stdout.readline())
        out, err = (files[name].read_text(encoding="utf-8") for name in ("stdout", "stderr"))
    return subprocess.CompletedProcess(arguments, status, out, err)
