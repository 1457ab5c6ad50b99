"""A tool that runs shell commands: bash. It is not a sandbox.

Copy with: common/approve.py and what it names.

    agent = Agent(llm=..., tools=Shell("project").tools)

What keeps a command from doing harm is a container or a user account without rights. What is in
here keeps an agent from hanging, from filling the memory, and from seeing your keys by accident.
"""

from __future__ import annotations

import asyncio
import os
import re
import secrets
import shlex
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from fnmatch import fnmatchcase
from pathlib import Path
from tempfile import TemporaryDirectory

from ..common.approve import Approve, check_approval
from ..errors import ToolError
from ..tools import Tool, tool
from ..waiting import call_function, within

MAX_OUTPUT = (
    30_000  # bytes of a command's output that are kept: one half from its start, one its end
)
MAX_TIMEOUT = 3600.0  # seconds that a command may ask for
DRAIN_SECONDS = 2.0  # to read what is left in the pipe when a command has ended

PLAIN_COMMAND = re.compile(r"[\w ./,:=@+~*?'\"\[\]-]+")  # no ; | & $ ( ) < > and no second line
SECRET_NAME = re.compile(
    "(?i)KEY|TOKEN|SECRET|PASS|_PWD|PW$|CREDENTIAL|AUTH|PRIVATE|COOKIE|CONNECTION_STRING|BEARER|"
    "JWT|WEBHOOK|DSN|(^|_)(PAT|PEM|SAS)(_|$)"
)
SECRET_VALUE = re.compile(
    r"(?i)://([^/\s@]+|[^/\s:@]*:\S+)@|\b(password|pwd|sig)=|\bBearer \S|-----BEGIN |"
    r"(^|[\s='\"])(sk-|gh[oprsu]_|github_pat_|glpat-|xox\w-|AKIA|ASIA|AIza|eyJ)[\w-]{8}"
)


class Shell:
    """A shell that starts in a folder, and stays in the one that a command changed to.

    It is not a sandbox: a command can do what your user can, which includes files outside of the
    folder, the network, and (from /proc, on Linux) the environment of the program itself.

    root: the folder where it starts. A folder outside of it is not kept for the next command.
    allow: what may run; None is everything. A command of plain words has to match one of these
        patterns as a whole (*, ?, [abc]): "pwd", "ls *", "wc *". One with anything else in it, such
        as ; | & $ ( ) < > or a second line, has to be in the list exactly as it is. Patterns are no
        sandbox: they choose a program, and it does whatever its options can. "sort *" (-o) and
        "git log *" (--output) write any file, "rg *" (--pre), "find *" and "python *" run any
        program. So put a * only behind a program that can do no more than read and print.
    approve: called with the tool's name and its exact arguments before each command; plain (it runs
        in a thread) or async. Anything but True denies, and so do an error and no answer in time.
    approve_timeout: how many seconds it may take.
    env: variables to add. The others are this program's, without those that look like secrets.
    on_output: gets each piece of a command's output as it comes, in a thread.

    The folder is kept in the Shell: give agents that work side by side one each. If this program is
    killed, a command that is running goes on.
    """

    def __init__(
        self,
        root: str | Path = ".",
        *,
        allow: Sequence[str] | None = None,
        approve: Approve = None,
        approve_timeout: float = 300.0,
        env: Mapping[str, str] | None = None,
        on_output: Callable[[str], None] | None = None,
    ) -> None:
        self.root = self.cwd = Path(root).resolve()
        os.listdir(self.root)  # raises now if it is no folder
        if isinstance(allow, str):
            raise TypeError("allow= takes a list of patterns, such as ['pwd', 'ls *']")
        self.allow = allow
        self.approve = approve
        self.approve_timeout = approve_timeout
        self.env = dict(env or {})
        self.on_output = on_output

    @property
    def tools(self) -> list[Tool]:
        """Return the tool `bash`, at work in this shell."""
        return [self.bash]

    @tool(parallel=False)
    async def bash(self, command: str, timeout: float = 120.0) -> str:
        """Run a shell command and return what it prints. There is no input: use options like -y.

        The next command starts in the folder where this one ended. Variables do not last, and
        nothing runs on in the background. Long output loses its middle. This is not a sandbox: a
        command acts on the real system, with the rights of the user who runs this program.

        Args:
            command: The command, as for bash -c.
            timeout: After so many seconds it is killed.
        """
        if not 0 < timeout <= MAX_TIMEOUT:
            raise ToolError(f"timeout is a number of seconds up to {MAX_TIMEOUT:g}.")
        self.check(command)
        arguments = {"command": command, "timeout": timeout}
        await check_approval(self.approve, "bash", arguments, seconds=self.approve_timeout)
        with TemporaryDirectory(ignore_cleanup_errors=True) as temporary:
            folder = Path(temporary, "folder")
            output, code = await self._run(command, timeout, folder)
            with suppress(OSError, ValueError):
                here = Path(os.fsdecode(folder.read_bytes()).rstrip("\r\n"))
                if here.is_relative_to(self.root):
                    self.cwd = here
                else:
                    output += f"\n[The next command starts in {self.cwd} again, not in {here}.]"
        if code is None:
            raise ToolError(f"{output}\n[Killed: not finished after {timeout:g} seconds.]")
        if code > 0:
            output += f"\n[Exit code {code}.]"
        elif code < 0:
            output += f"\n[Killed by signal {-code}.]"
        return output

    def check(self, command: str) -> None:
        """Raise ToolError unless the patterns allow a command."""
        if self.allow is None or command in self.allow:
            return
        if PLAIN_COMMAND.fullmatch(command):
            for pattern in self.allow:
                if fnmatchcase(command, pattern):
                    return
        raise ToolError(f"Not run: allowed are only {[*self.allow]}, a * being plain words.")

    async def _run(self, command: str, timeout: float, folder: Path) -> tuple[str, int | None]:
        """Run a command; return what it prints and its exit code, or None if its time was over.

        What it leaves running is killed. `folder` is the file that gets the folder where it ended.
        """
        reading_end, writing_end = os.pipe()
        mark = secrets.token_bytes(16)
        reading = asyncio.ensure_future(
            call_function(_head_and_tail, reading_end, mark, self.on_output)
        )
        process = code = None
        try:
            process = self._start(command, folder, writing_end)
            code = await within(timeout, call_function(process.wait), grace=1.0)
        except TimeoutError:
            pass  # there is no exit code
        except (OSError, ValueError) as error:
            raise ToolError(f"The command cannot be started: {error}") from error
        finally:
            if process:
                _kill_group(process)
            with open(writing_end, "wb") as pipe:
                pipe.write(mark)
        return await within(DRAIN_SECONDS, reading, grace=0), code

    def _start(self, command: str, folder: Path, output: int) -> subprocess.Popen[bytes]:
        """Start a command that writes to the file descriptor `output`."""
        if not self.cwd.is_dir():
            self.cwd = self.root
        program = shutil.which("bash") or shutil.which("sh")
        arguments: str | list[str] = command  # Windows without a bash: for the shell that is there
        if program:
            write_folder = f"pwd -P > {shlex.quote(str(folder))}"
            # a command's own EXIT trap takes the place of this one
            script = f'trap {shlex.quote(write_folder)} EXIT; eval "$1"'
            arguments = [program, "-c", script, "bash", command]
        return subprocess.Popen(
            arguments,
            shell=not program,
            cwd=self.cwd,
            env=clean_environment() | self.env,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )


def clean_environment() -> dict[str, str]:
    """Return this program's environment without what looks like a secret, by name or by value."""
    return {
        name: value
        for name, value in os.environ.items()
        if not SECRET_NAME.search(name) and not SECRET_VALUE.search(value)
    }


def _head_and_tail(pipe: int, mark: bytes, tell: Callable[[str], None] | None) -> str:
    """Read a pipe up to a mark; return the head and the tail of what came before it.

    It does not read up to the pipe's end: a process that escaped may hold the pipe open.
    """
    data = bytearray()
    half = MAX_OUTPUT // 2
    left_out = 0
    end = -1
    with open(pipe, "rb", buffering=0) as stream:
        while end < 0:
            piece = stream.read(1 << 16)
            if tell:
                tell(piece.removesuffix(mark).decode(errors="replace"))
            data += piece
            end = data.find(mark)
            if end >= 0:
                del data[end:]
            too_many = len(data) - MAX_OUTPUT
            if too_many > 0:
                del data[half : half + too_many]
                left_out += too_many
    note = b""
    if left_out:
        note = f"\n[... {left_out:,} bytes are left out ...]\n".encode()
    text = (data[:half] + note + data[half:]).decode(errors="replace").rstrip()
    return text or "[No output.]"


def _kill_group(process: subprocess.Popen[bytes]) -> None:
    """Kill a command and what it has started. What has left its group (setsid) escapes."""
    if sys.platform == "win32":
        with suppress(OSError, subprocess.TimeoutExpired):
            line = ["taskkill", "/T", "/F", "/PID", str(process.pid)]
            subprocess.run(line, capture_output=True, timeout=5, check=False)
    else:
        with suppress(OSError):  # all gone; macOS: only zombies are left
            os.killpg(process.pid, signal.SIGKILL)
