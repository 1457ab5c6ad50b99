"""Standing approvals ("always") of the chat, and the approval modes."""

import re
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Literal, NamedTuple

from agentloop import ToolCall

EDITS = ("write", "edit", "multi_edit")
# The modes of the chat in the order of Shift-Tab: `approval_mode`, and the tools that run unasked
MODES: Mapping[str, tuple[Literal["ask", "plan"], Sequence[str]]] = {
    "accept edits": ("ask", EDITS),
    "plan": ("plan", ()),
    "ask": ("ask", ()),
}
# Programs that only read, whatever their options are
READERS = frozenset(
    [
        *("ls", "cat", "head", "tail", "wc", "grep", "egrep", "fgrep", "pwd", "echo", "stat", "du"),
        *("df", "diff", "cmp", "comm", "cut", "nl", "tac", "od", "strings", "basename", "dirname"),
        *("realpath", "readlink", "which", "whoami", "id", "uname", "md5sum", "sha256sum"),
    ]
)
# Options with which these programs follow the links inside a folder
FOLLOWING: Mapping[str, str] = {
    **dict.fromkeys(["grep", "egrep", "fgrep"], r"-\w*R\w*|--d[\w-]*"),
    "diff": r"-\w*r\w*|--r[\w-]*",
}
# Commands whose other options write files, delete, or start a program: only these are allowed
OPTIONS: Mapping[str, str] = {
    "git status": "-s --short -b --branch --porcelain -uno --ignored --long",
    "git log": "-n -p --oneline --stat --graph --all --decorate --since --until --author --grep "
    "--format --pretty --name-only --name-status --follow --reverse --merges --no-merges --date",
    "git diff": "--stat --staged --cached --name-only --name-status -w -b --check --word-diff -U",
    "git show": "--stat --name-only --name-status --oneline --format --pretty -s -p",
    "git blame": "-L -w -C -M",
    "git ls-files": "-m -o -d --modified --others --exclude-standard --deleted",
    "git rev-parse": "--short --abbrev-ref --show-toplevel --verify",
    "git branch": "-a -r -v -vv --list --show-current",
    "pytest": "-q -qq -v -vv -x -s -k -m -n -l --lf --ff --sw --tb --maxfail --durations",
    "ruff check": "--select --ignore --statistics --diff -q",
    "mypy": "--strict --pretty --show-error-codes",
    "pyright": "--stats --warnings",
    "eslint": "--quiet --max-warnings",
    "go test": "-v -run -race -count -short -cover -bench -timeout",
    "go vet": "",
    "go build": "-v -race",
    "cargo check": "-p --workspace --all --all-targets --release -q -v",
    "cargo build": "-p --workspace --all --all-targets --release -q -v",
    "cargo test": "-p --workspace --all --release -q -v --lib --doc --no-fail-fast",
    "cargo clippy": "-p --workspace --all --all-targets -q",
    "docker ps": "-a -q",
    "docker images": "-a -q",
    "kubectl get": "-n -A -w",
}
# Operands that a command may have, if not any: `git branch NAME` creates a branch, and
# `pytest deploy.py` imports deploy.py
OPERANDS: Mapping[str, str] = {
    "git branch": "",
    "docker ps": "",
    "docker images": "",
    "pytest": r"(?!.*\.py).*|(.*/)?(test_\w+|\w+_test)\.py(::.*)?",
}
# No second command, substitution, redirection, variable, escape or brace expansion
ONE_COMMAND = re.compile(r"[\w ./,:=@+~^%'\"-]*")
# A path outside the folder, or a hidden file, which may contain a secret; also after "-f" or "="
GUARDED = re.compile(r"(^(-\w*)?|[=,:])([/~]|\.\.(/|$)|\.+[^./])|/\.\.(/|$)|/\.+[^./]")
FILE_OF_OPTIONS = re.compile(r"@[\w./]")  # `mypy @file` reads further options from the file


class Always(NamedTuple):
    """A standing approval: its text for the user, the tools, and the commands of bash.

    command: None for any arguments; "git log *" for one entry of the tables; otherwise exactly
        this command.
    """

    text: str
    tools: Sequence[str]
    command: str | None = None

    def covers(self, call: ToolCall, folder: Path = Path(), root: Path = Path()) -> bool:
        """Return whether the call needs no further approval.

        folder: the folder of the shell. A prefix covers no command that names a link out of `root`.
        """
        if call.name not in self.tools:
            return False
        if self.command is None:
            return True
        arguments = call.parsed or {}
        command = str(arguments.get("command"))
        if arguments.get("background"):  # requires approval each time
            return False
        if command == self.command:
            return True
        is_prefix = prefix_of(command) == self.command
        return is_prefix and not reads_through_link(command, folder, root)


def always_for(call: ToolCall) -> Always:
    """Return the standing approval to offer for a call.

    A command that only reads allows its program with any arguments ("cat *"), a command of the
    table `OPTIONS` allows the same command with its harmless options ("git log *"), and any other
    command allows only itself.
    """
    if call.name in EDITS:
        return Always("each edit", EDITS)
    if call.name != "bash":
        return Always(f"each {call.name}", [call.name])
    command = str((call.parsed or {}).get("command"))
    prefix = prefix_of(command)
    return Always(prefix or "this command", ["bash"], prefix or command)


def prefix_of(command: str) -> str:
    """Return the prefix with "*" that covers a command safely, or "" if there is none."""
    if not ONE_COMMAND.fullmatch(command):
        return ""
    try:
        words = shlex.split(command)
    except ValueError:  # an unbalanced quote
        return ""
    if any(GUARDED.search(word) for word in words):
        return ""
    name, subcommand = " ".join(words[:1]), " ".join(words[:2])
    if name in READERS:
        follows = re.compile(FOLLOWING.get(name, "(?!)"))
        return "" if any(map(follows.fullmatch, words)) else f"{name} *"
    for known in (name, subcommand):
        if known in OPTIONS and are_harmless(known, words[len(known.split()) :]):
            return f"{known} *"
    return ""


def reads_through_link(command: str, folder: Path, root: Path) -> bool:
    """Return whether a word of a command in `folder` is a link to a place outside `root`."""
    for word in re.split(r"[ =:,'\"]+", command):
        if not (folder / word).resolve().is_relative_to(root.resolve()):
            return True
    return False


def are_harmless(known: str, words: Sequence[str]) -> bool:
    """Return whether the arguments of a command are among those that `OPTIONS` allows."""
    options = OPTIONS[known].split()
    for word in words:
        if not word.startswith("-"):
            is_operand = re.fullmatch(OPERANDS.get(known, ".*"), word)
            if not is_operand or FILE_OF_OPTIONS.match(word):
                return False
        elif not re.fullmatch(r"--|-\d+", word) and word.partition("=")[0] not in options:
            return False
    return True
