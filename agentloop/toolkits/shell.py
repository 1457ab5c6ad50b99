"""Tools that run shell commands, locally or in a container: bash, bash_output, bash_kill.

Copy with: common/processes.py, tools.py and their imports.

    shell = Shell("project")
    shell = Shell("/app", command=["docker", "exec", "-i", "box", "bash"])
    agent = Agent(llm=..., tools=shell.tools)

A Shell isn't a security boundary. To protect yourself from harmful commands, run the program as a
user that may do little, or use `command` to run them in a container. What this module does: a
command can't hang the agent or fill your memory, and doesn't get your keys by accident.
"""

from __future__ import annotations

import asyncio
import os
import re
import secrets
import shlex
import shutil
import subprocess
import time
from asyncio import FIRST_COMPLETED
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from fnmatch import fnmatchcase
from pathlib import Path
from threading import Lock

from ..common.processes import kill_group
from ..errors import ToolError
from ..tools import Tool, tool
from ..waiting import call_function, cancel_and_wait, wait_for

HALF = 15_000  # bytes of output that are kept at the beginning, and at the end
MAX_TIMEOUT = 3600.0
"""The longest timeout that a command may have, in seconds."""
FIRST_LOOK = 0.2  # seconds in which a background command may fail at once
LAST_LOOK = 0.2  # seconds before a kill: the command may have ended while Ctrl-Z stopped us
MAX_BACKGROUND = 16  # background commands, and ended ones whose output nobody has read
PAUSE = 0.02  # seconds between reads of up to 64 KB of a background command's output
# Colours, cursor movements and window titles
ESCAPES = re.compile(r"\x1b(\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(\x07|\x1b\\)|[ -/]*[0-Z\\^-~])")
DRAIN_SECONDS = 2.0  # for reading the rest of the pipe after a command has ended

# The shell reads this script from its standard input. A watchdog, which isn't a child of the shell,
# kills the process group when the input ends, because this program has closed it or was killed;
# that also works in a container. The final directory is printed between two marks, in one write;
# `set +x` keeps a trace out of it. If a command prints its traps, it doesn't print a mark, because
# the trap has "" inside both. The braces make it one compound command, so that the shell has read
# all of it before it redirects its input.
SCRIPT = """{{
exec 3<&0 8>&1 </dev/null
( (read -r _ <&3; kill -9 0) >/dev/null 2>&1 8>&- & )
exec 3<&-
cd {folder} 2>/dev/null || cd {root} || exit
trap '{{ set +x; }} 2>/dev/null; cd -P . && printf %s :""{mark}"$PWD":""{mark} >&8' EXIT
eval {command}
}}
"""

PLAIN_COMMAND = re.compile(r"[\w ./,:=@+~*?'\"\[\]-]+")  # no ; | & $ ( ) < > and no line ends
# The last word decides: MAX_TOKENS, SSH_AUTH_SOCK and POSTGRES_PASSWORD_FILE aren't secrets
SECRET_NAME = re.compile(
    "(?i)(KEY(_BASE)?|TOKEN|SECRET|PASS|PASSWORD|PASSWD|PASSPHRASE|PW|_PWD|CREDENTIALS?|COOKIE|"
    "CONNECTION_STRING|BEARER|JWT|WEBHOOK(_URL)?|MNEMONIC|"
    r"(^|_)(AUTH|DSN|SIGNING|OTP|PAT|PEM|SAS|SALT|PIN|PFX|P12))_?\d*$"
)
SECRET_VALUE = re.compile(
    r"(?i)(https?://[^/\s:@]+|://[^/\s:@]*:\S+)@(?!localhost\b|127\.)|"
    r"\b(password|pwd|sig)=|\bBearer \S|-----BEGIN |"
    r"(^|[\s='\"])(sk[-_]|rk_|pk_|gh[oprsu]_|github_pat_|gl\w{2,4}-|xox\w-|xapp-|AKIA|ASIA|AIza|eyJ|"
    r"hf_|npm_|pypi-|dop_v1_|shp\w{2}_|SG\.|ya29\.|AGE-SECRET-KEY-|hvs\.|whsec_|lin_api_|r8_|gsk_|"
    r"xai-|pplx-|tvly-|dckr_pat_|ATATT|EAAC|sq0\w{3}-|key-)[\w-]{8}"
)


class Shell:
    """A shell that remembers its working directory, but not after a restart.

    If another process continues a session or a workflow, its Shell is a new one: the next command
    starts in `root`, even if the model changed to another directory before, and the background
    commands are gone. So tell the model, or let the system prompt ask for `cd sub && make`.

    A shell isn't a security boundary: commands can do what you can, with files outside of the
    directory, the network, and (from /proc, on Linux) the environment of the program itself. If
    `command` starts the shell in a container, the container is the boundary.

    root: where the first command starts. If a command changes to a directory outside of `root`, the
        next one starts where it started itself.
    command: the shell, and before it the programs that start it: ["docker", "exec", "-i", name,
        "bash"], or bwrap, podman, ssh. Pass standard input on to the shell (`-i`): the commands
        come from there, and when it ends, the remaining processes are killed. `root` is then a
        directory in the container. `env` only reaches the first program: for variables in the
        container, use `docker exec -e`. With None, it's the bash or sh of this machine.
    allow: which commands may run; None allows all. If a command consists of plain words, the whole
        of it must match a pattern (*, ?, [abc]): "pwd", "ls *", "wc *". If it has any other
        character, such as ; | & $ ( ) < > or a line end, list it exactly. Patterns aren't a
        sandbox: a command can do whatever the program's options can. "sort *" (-o) and
        "git log *" (--output) write any file; "rg *" (--pre), "find *" and "python *" run any
        program. Use * only for programs that can do nothing but read and print.
    env: more environment variables. Commands also get this program's variables, except those that
        look like secrets: see `withheld`.
    pass_env: names (*, ?, [abc]) of variables that commands get although they look like secrets,
        such as ["DATABASE_URL", "AWS_*"]. ["*"] passes all of them.
    on_output: a function that gets each piece of output as soon as the command prints it, in a
        thread. It isn't called for background commands.

    The model reads output as a terminal shows it in the end: see `as_displayed`. If several agents
    work at the same time, give each its own Shell, because a Shell remembers where it is.
    Background commands end with the event loop (`asyncio.run`, `run_sync`), with `close()`, and
    after an hour. If this program is killed, so are the processes of its commands.
    """

    def __init__(
        self,
        root: str | Path = ".",
        *,
        command: Sequence[str] | None = None,
        allow: Sequence[str] | None = None,
        env: Mapping[str, str] | None = None,
        pass_env: Sequence[str] = (),
        on_output: Callable[[str], None] | None = None,
    ) -> None:
        for name, value in {"allow": allow, "command": command, "pass_env": pass_env}.items():
            if isinstance(value, str):
                raise TypeError(f"{name} must be a list, such as [{value!r}]")
        self.root = Path("/", root)
        if not command:
            self.root = Path(root).resolve()
            os.listdir(self.root)  # fails here and not later if it isn't a directory
        self.cwd = self.root
        self.command = command
        self.allow = allow
        self.env = dict(env or {})
        self.pass_env = pass_env
        self.on_output = on_output
        self._moved: asyncio.Future[None] | None = None  # while a command runs in the foreground
        self.background = dict[str, Running]()  # by the ids returned to the model

    @property
    def tools(self) -> list[Tool]:
        """The three tools. To offer only the main one, write `tools=[shell.bash]`."""
        return [self.bash, self.bash_output, self.bash_kill]

    @property
    def withheld(self) -> list[str]:
        """Names of variables that commands don't get, because they look like secrets."""
        return sorted(os.environ.keys() - self._environment())

    @tool(parallel=False)
    async def bash(self, command: str, timeout: float = 120.0, background: bool = False) -> str:
        """Run a shell command and return its output. Standard input is empty: use options like -y.

        The working directory persists between commands; variables do not, and processes left
        running are killed. Long output is truncated in the middle. Commands are not sandboxed: they
        act on the real system, with the privileges of the current user.

        Args:
            command: The command, as for bash -c.
            timeout: Number of seconds after which the command is killed.
            background: Return immediately while the command continues, for an hour at most: for
                servers and long builds. `bash_output` returns the output.
        """
        if not 0 < timeout <= MAX_TIMEOUT:
            raise ToolError(f"timeout is a number of seconds up to {MAX_TIMEOUT:g}.")
        self.check(command)
        if background and self._is_full:
            raise ToolError(
                f"{MAX_BACKGROUND} commands are in the background: first kill one with bash_kill, "
                f"or read the end of one with bash_output. Their ids: {', '.join(self.background)}."
            )
        output = Output(pause=PAUSE) if background else Output(self.on_output)
        task = asyncio.create_task(self._run(command, output), name=command)
        if background or await self._is_moved(task, timeout):
            output.tell = None
            id = secrets.token_hex(3)
            self.background[id] = task, output
            return f"In the background. Its id is {id}.\n{await self.bash_output(id, FIRST_LOOK)}"
        code = None if task.cancelled() else task.result()
        text = (output.take() or "[No output.]") + describe_end(code, timeout)
        if code is None:
            raise ToolError(text)
        return text + self._change_folder(self.cwd / output.folder)

    @tool(read_only=True)
    async def bash_output(self, id: str, wait: float = 0.0) -> str:
        """Return what a background command has printed since the last time.

        Args:
            id: The id that `bash` returned.
            wait: Seconds to wait for the end of the command, instead of asking again and again.
        """
        task, output = self._find(id)
        if not task.done():
            await asyncio.wait([task], timeout=min(wait, MAX_TIMEOUT))
        text = output.take() or "[Nothing new.]"
        if not task.done():
            return f"{text}\n[It is still running.]"
        self.background.pop(id, None)
        if task.cancelled():
            return f"{text}\n[Killed.]"
        return text + (describe_end(task.result(), MAX_TIMEOUT) or "\n[It has ended.]")

    @tool
    async def bash_kill(self, id: str) -> str:
        """Kill a background command, and return the rest of its output.

        Args:
            id: The id that `bash` returned.
        """
        task, _ = self._find(id)
        task.cancel()
        return await self.bash_output(id, 2 * DRAIN_SECONDS)

    def close(self) -> None:
        """Kill all background commands."""
        for task, _ in self.background.values():
            task.cancel()

    def move_to_background(self) -> bool:
        """Move the running command to the background: its call returns with an id.

        Returns False if no command is running, or if 16 are in the background already.
        """
        if not self._moved or self._moved.done() or self._is_full:
            return False
        self._moved.set_result(None)
        return True

    @property
    def _is_full(self) -> bool:
        return len(self.background) >= MAX_BACKGROUND

    def _change_folder(self, folder: Path) -> str:
        """Start the next command in a folder, or say why not: it's outside of `root`."""
        if not folder.is_relative_to(self.root):
            return f"\n[The next command starts in {self.cwd} again, not in {folder}.]"
        self.cwd = folder
        return ""

    async def _is_moved(self, task: asyncio.Task[int | None], timeout: float) -> bool:
        """Wait until a command ends, and kill it when its time is over. True if it was moved to the
        background meanwhile.
        """
        moved = self._moved = asyncio.get_running_loop().create_future()
        try:
            for seconds in (timeout, LAST_LOOK):
                await asyncio.wait([task, moved], timeout=seconds, return_when=FIRST_COMPLETED)
        finally:
            self._moved = None
            if not moved.done():
                await cancel_and_wait([task], 2 * DRAIN_SECONDS)
        return moved.done()

    def _find(self, id: str) -> Running:
        """Find a background command. Raises ToolError if there's none with this id."""
        if id not in self.background:
            raise ToolError(
                f"There is no background command {id!r:.80}, or you have read its end already."
            )
        return self.background[id]

    def check(self, command: str) -> None:
        """Raise ToolError unless `allow` allows the command."""
        if "\0" in command:
            raise ToolError("Not run: the command contains a NUL, which a shell would leave out.")
        if self.allow is None or command in self.allow:
            return
        if PLAIN_COMMAND.fullmatch(command):
            for pattern in self.allow:
                if fnmatchcase(command, pattern):
                    return
        raise ToolError(
            f"Not run: the command must match one of {[*self.allow]}; * matches plain words only."
        )

    async def _run(self, command: str, output: Output) -> int | None:
        """Run a command, and kill what it leaves running.

        Returns its exit code; None if it wasn't finished after MAX_TIMEOUT.
        """
        reading_end, writing_end = os.pipe()
        reading = asyncio.ensure_future(call_function(output.read, reading_end))
        process = code = None
        try:
            script = SCRIPT.format(
                folder=shlex.quote(self.cwd.as_posix()),
                root=shlex.quote(self.root.as_posix()),
                mark=output.mark.decode()[1:],
                command=shlex.quote(command),
            ).encode(errors="surrogateescape")
            process = self._start(writing_end)
            work = call_function(_feed, process, script)
            code = await wait_for(work, MAX_TIMEOUT, grace=1.0)
        except TimeoutError:
            pass  # `code` stays None
        except (OSError, ValueError) as error:
            raise ToolError(f"The command can't be started: {error}") from error
        finally:
            if process:
                kill_group(process.pid)
            with suppress(OSError), open(writing_end, "wb") as pipe:
                pipe.write(2 * output.mark)  # the end: two marks, and no directory between them
            await wait_for(reading, DRAIN_SECONDS, grace=0)
        return code

    def _environment(self) -> dict[str, str]:
        passed = dict[str, str]()
        for name, value in os.environ.items():
            named = any(fnmatchcase(name, pattern) for pattern in self.pass_env)
            if named or not is_secret(name, value):
                passed[name] = value
        return passed | self.env

    def _start(self, output: int) -> subprocess.Popen[bytes]:
        """Start a shell that writes to the file descriptor `output` and waits for its script."""
        return subprocess.Popen(
            self.command or [shutil.which("bash") or "sh"],
            bufsize=0,
            env=self._environment(),
            stdin=subprocess.PIPE,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )


def is_secret(name: str, value: str) -> bool:
    """Whether a variable looks like a secret. The path of an existing file doesn't."""
    if os.path.isabs(value) and os.path.exists(value):
        return False
    return bool(SECRET_NAME.search(name) or SECRET_VALUE.search(value))


class Output:
    """The output of a command. If it's long, the middle is left out.

    mark: comes before and after the final working directory in the output.
    folder: the final working directory, or "" if the command was killed.
    """

    def __init__(self, tell: Callable[[str], None] | None = None, pause: float = 0) -> None:
        self.tell = tell
        self.pause = pause
        self.mark = f":{secrets.token_hex(16)}".encode()
        self.folder = ""
        self.data = bytearray()
        self.left_out = 0  # bytes that are missing in the middle of the data
        self.lock = Lock()  # for `data` and `left_out`: a thread reads while `take` is called

    def read(self, pipe: int) -> None:
        """Read a pipe until two marks in a row. A process that escaped may keep the pipe open."""
        ended = False
        with open(pipe, "rb", buffering=0) as stream:
            while not ended:
                time.sleep(self.pause)  # a full pipe blocks the command meanwhile
                piece = stream.read(1 << 16)
                if self.tell:
                    self.tell(piece.partition(self.mark)[0].decode(errors="replace"))
                with self.lock:
                    self.data += piece
                    printed, *marked = self.data.split(self.mark)
                    if len(marked) >= 2:
                        self.data = printed + b"".join(marked[1:])
                        self.folder = self.folder or marked[0].decode(errors="surrogateescape")
                        ended = not marked[-2]
                    too_many = len(self.data) - 2 * HALF
                    if too_many > 0:
                        del self.data[HALF : HALF + too_many]
                        self.left_out += too_many

    def take(self) -> str:
        """Take the output since the last call."""
        note = b""
        with self.lock:
            if self.left_out:
                note = f"\n[... {self.left_out:,} bytes omitted ...]\n".encode()
            text = self.data[:HALF] + note + self.data[HALF:]
            self.data.clear()
            self.left_out = 0
        return as_displayed(text.decode(errors="replace")).rstrip()


def as_displayed(text: str) -> str:
    """Turn output into what a terminal shows in the end: of a progress bar, only its last state.

    Colours are left out, and backspaces delete.
    """
    text = ESCAPES.sub("", text).replace("\r\n", "\n")
    return "\n".join(map(_last_state, text.split("\n")))


def _last_state(line: str) -> str:
    """What's left of a line after carriage returns and backspaces."""
    line = line.rstrip("\r").rpartition("\r")[2]
    if "\b" not in line:
        return line
    kept = list[str]()
    for char in line:
        if char != "\b":
            kept.append(char)
        elif kept:
            kept.pop()
    return "".join(kept)


Running = tuple[asyncio.Task[int | None], Output]  # a background command


def describe_end(code: int | None, seconds: float) -> str:
    """Describe an exit code for the model: "" for 0, a timeout for None."""
    if code is None:
        return f"\n[Killed: not finished after {seconds:g} seconds.]"
    if code < 0:
        return f"\n[Killed by signal {-code}.]"
    return f"\n[Exit code {code}.]" if code else ""


def _feed(process: subprocess.Popen[bytes], script: bytes) -> int:
    """Send the script to a shell, and wait until it ends. Returns its exit code."""
    with process:  # closes the standard input at the end
        if process.stdin:
            with suppress(OSError):  # the shell may end before it has read anything
                process.stdin.write(script)
        return process.wait()
