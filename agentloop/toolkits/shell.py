"""A tool that runs shell commands: bash. It is not a sandbox.

Copy with: tools.py and what it names.

    agent = Agent(llm=..., tools=Shell("project").tools)

What keeps a command from doing harm is a container or a user account without rights. What is in
here keeps an agent from hanging, from filling the memory, and from seeing your keys by accident.
`dependency_overrides={shell: lambda: Shell(tmp_path)}` moves the tool into a test's folder.
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
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from fnmatch import fnmatchcase
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, Any

from ..depends import Depends
from ..errors import ToolError
from ..tools import Tool, in_thread, is_approved, tool
from ..waiting import within

COMMAND_DENIED = "Denied: this command was not approved, and was not run. Do not just try it again."
MAX_OUTPUT = 30_000  # bytes of a command's output that are kept: half from its start, half its end
MAX_TIMEOUT = 3600.0
DRAIN_SECONDS = 2.0  # to read what is left in the pipe

PLAIN = re.compile(r"[\w ./,:=@+~*?'\"\[\]-]+")  # nothing that makes a second command of it
SECRET_NAME = re.compile(
    "(?i)KEY|TOKEN|SECRET|PASS|_PWD|PW$|CREDENTIAL|AUTH|PRIVATE|COOKIE|CONNECTION_STRING|BEARER|"
    "JWT|WEBHOOK|DSN|(^|_)(PAT|PEM|SAS)(_|$)"
)
SECRET_VALUE = re.compile(
    r"(?i)://([^/\s@]+|[^/\s:@]*:\S+)@|\b(password|pwd|sig)=|\bBearer \S|-----BEGIN |"
    r"(^|[\s='\"])(sk-|gh[oprsu]_|github_pat_|glpat-|xox\w-|AKIA|ASIA|AIza|eyJ)[\w-]{8}"
)
KEEP_FOLDER = """trap {} EXIT; eval "$1\""""  # a command's own EXIT trap takes its place


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
        in a thread) or async. Anything but True denies: an error, and no answer in time, too.
    approve_timeout: how many seconds it may take.
    env: variables to add. The others are this program's, without those that look like secrets.

    The folder is kept in the Shell: give agents that work side by side one each. If this program is
    killed, a command that is running goes on.
    """

    def __init__(
        self,
        root: str | Path = ".",
        *,
        allow: Sequence[str] | None = None,
        approve: Callable[[str, dict[str, Any]], bool | Awaitable[bool]] | None = None,
        approve_timeout: float = 300.0,
        env: Mapping[str, str] | None = None,
    ) -> None:
        self.root = self.cwd = Path(root).resolve(strict=True)
        if not self.root.is_dir():
            raise NotADirectoryError(f"a shell starts in a folder, and {str(root)!r} is none")
        if isinstance(allow, str):
            raise TypeError("allow= takes a list of patterns, such as ['pwd', 'ls *']")
        self.allow, self.env = allow, dict(env or {})
        self.approve, self.approve_timeout = approve, approve_timeout

    @property
    def tools(self) -> list[Tool]:
        """The tool `bash`, at work in this shell."""
        return [bash.bind({shell: lambda: self})]

    def check(self, command: str) -> None:
        """ToolError unless the patterns allow a command."""
        if self.allow is None or command in self.allow:
            return
        if not PLAIN.fullmatch(command):
            problem = "it has more in it than plain words"
        elif not any(fnmatchcase(command, pattern) for pattern in self.allow):
            problem = "it matches none of them"
        else:
            return
        raise ToolError(f"Not run: allowed are only {list(self.allow)}, and {problem}.")

    async def run(self, command: str, timeout: float) -> str:
        """What a command prints, and how it ended. What it leaves running is killed."""
        if not self.cwd.is_dir():
            self.cwd = self.root
        with TemporaryDirectory(ignore_cleanup_errors=True) as temporary:
            folder = Path(temporary, "cwd")
            output = _Output()
            reading = asyncio.ensure_future(in_thread(output.read))
            process = code = None
            try:
                process = self._start(command, folder, output.writing_end)
                code = await within(timeout, in_thread(process.wait), grace=1.0)
            except TimeoutError:
                pass
            finally:
                if process:
                    _kill_group(process)
                output.end()
                await asyncio.wait([reading], timeout=DRAIN_SECONDS)
            text = output.text()
            if code is None:
                raise ToolError(f"{text}\n[Killed: not finished after {timeout:g} seconds.]")
            return "\n".join([text, *self._notes(code, folder)])

    def _start(self, command: str, folder: Path, output: int) -> subprocess.Popen[bytes]:
        program = shutil.which("bash") or shutil.which("sh")
        keep_folder = KEEP_FOLDER.format(shlex.quote(f"pwd -P > {shlex.quote(str(folder))}"))
        line = [program, "-c", keep_folder, "bash", command] if program else command
        try:
            return subprocess.Popen(
                line,
                shell=not program,  # Windows without a bash: the shell that is there
                cwd=self.cwd,
                env=clean_environment() | self.env,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        except (OSError, ValueError) as error:
            raise ToolError(f"The command cannot be started: {error}") from error

    def _notes(self, code: int, folder: Path) -> list[str]:
        """How it ended, and where: that is where the next command starts."""
        how = f"Exit code {code}" if code > 0 else f"Killed by signal {-code}"
        notes = [f"[{how}.]"] * bool(code)
        with suppress(OSError, ValueError):
            here = Path(os.fsdecode(folder.read_bytes()).rstrip("\r\n"))
            if here.is_relative_to(self.root) and here.is_dir():
                self.cwd = here
            else:
                notes.append(f"[The next command starts in {self.cwd} again, not in {here}.]")
        return notes


def shell() -> Shell:
    """The dependency that `bash` asks for. It is always replaced, or it says how."""
    raise LookupError(
        "no shell is set: use tools=Shell('path').tools, or "
        "dependency_overrides={shell: lambda: Shell('path')}"
    )


@tool(parallel=False)
async def bash(
    command: str, timeout: float = 120.0, *, sh: Annotated[Shell, Depends(shell)]
) -> str:
    """Runs a shell command and returns what it prints. There is no input: use options like --yes.

    The next command starts in the folder where this one ended. Variables do not last, and nothing
    runs on in the background. Long output loses its middle. This is not a sandbox: a command acts
    on the real system, with the rights of the user who runs this program.

    Args:
        command: The command, as for bash -c.
        timeout: After so many seconds it is killed.
    """
    if not 0 < timeout <= MAX_TIMEOUT:
        raise ToolError(f"timeout is a number of seconds up to {MAX_TIMEOUT:g}.")
    sh.check(command)
    arguments = {"command": command, "timeout": timeout}
    if not await is_approved(sh.approve, "bash", arguments, seconds=sh.approve_timeout):
        raise ToolError(COMMAND_DENIED)
    return await sh.run(command, timeout)


def clean_environment() -> dict[str, str]:
    """This program's environment without what looks like a secret, by its name or its value."""
    return {
        name: value
        for name, value in os.environ.items()
        if not SECRET_NAME.search(name) and not SECRET_VALUE.search(value)
    }


class _Output:
    """The start and the end of what comes before a mark: what escapes may hold the pipe open."""

    def __init__(self) -> None:
        self.data, self.cut = bytearray(), 0
        self.mark = secrets.token_bytes(16)
        self.reading_end, self.writing_end = os.pipe()

    def end(self) -> None:
        with suppress(OSError), open(self.writing_end, "wb", buffering=0) as pipe:
            pipe.write(self.mark)

    def read(self) -> None:
        with open(self.reading_end, "rb", buffering=0) as pipe:
            while self.mark not in self.data and (chunk := pipe.read(1 << 16)):
                self._cut_the_middle()
                self.data += chunk
        self.data = self.data.partition(self.mark)[0]
        self._cut_the_middle()

    def _cut_the_middle(self) -> None:
        if (size := len(self.data) - MAX_OUTPUT) > 0:
            del self.data[MAX_OUTPUT // 2 : MAX_OUTPUT // 2 + size]
            self.cut += size

    def text(self) -> str:
        half, note = MAX_OUTPUT // 2, f"\n[... {self.cut:,} bytes are left out ...]\n".encode()
        kept = self.data[:half] + note * bool(self.cut) + self.data[half:]
        return kept.decode(errors="replace").rstrip() or "[No output.]"


def _kill_group(process: subprocess.Popen[bytes]) -> None:
    """Kills a command and what it has started. What has left the group (setsid) escapes."""
    if sys.platform == "win32":
        with suppress(OSError, subprocess.TimeoutExpired):
            line = ["taskkill", "/T", "/F", "/PID", str(process.pid)]
            subprocess.run(line, capture_output=True, timeout=5, check=False)
    else:
        with suppress(ProcessLookupError, PermissionError):  # all gone; macOS: only zombies left
            os.killpg(process.pid, signal.SIGKILL)
