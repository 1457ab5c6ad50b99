"""Standing approvals ("always") of the chat, and the approval modes."""

import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Literal, NamedTuple

from agentloop import Tool, ToolCall
from agentloop.messages import JSON
from agentloop.mixins.approval import Rule

EDITS = ("write", "edit", "multi_edit")
# The modes of the chat in the order of Shift-Tab: `approval_mode`, and tools without approval
MODES: Mapping[str, tuple[Literal["ask", "plan", "auto"], Sequence[str]]] = {
    "accept edits": ("ask", EDITS),
    "plan": ("plan", ()),
    "ask": ("ask", ()),
    "allow all": ("auto", ()),  # only after --yes
}
# Programs that are read-only with all options
READERS = (
    "ls cat head tail wc grep pwd echo stat du df cmp comm cut nl tac od "
    "basename dirname realpath readlink which whoami id uname md5sum sha256sum"
)
FOLLOWS_LINKS = re.compile(r"-\w*R\w*|--d[\w-]*")  # options of grep
# The harmless options of commands whose other options write, delete, or start programs
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
# Permitted operands of commands with harmful operands: `git branch NAME` creates a branch, and
# `pytest deploy.py` imports deploy.py
OPERANDS: Mapping[str, str] = {
    "git branch": "",
    "pytest": r"(?!.*\.py).*|(.*/)?(test_\w+|\w+_test)\.py(::.*)?",
}
# Without a second command, substitution, redirection, variable, escape or brace expansion
ONE_COMMAND = re.compile(r"[\w ./,:=@+~^%'\"-]*")
# A path outside the directory, also after "-f" or "="
OUTSIDE = re.compile(r"(^(-\w*)?|[=,:])([/~]|\.\.(/|$))|/\.\.(/|$)")
FILE_OF_OPTIONS = re.compile(r"@[\w./]")  # `mypy @file` reads additional options from the file

# What separates the commands of a line, and what may precede a program: a keyword, a variable, a
# program that starts another one. git has options before its subcommand.
SEPARATORS = re.compile(r"[;&|()`{}\n]")
STARTER = re.compile(
    r"(!|if|elif|while|until|do|then|else|\w+=\S*|(\S*/)?(sudo|env|command|exec|eval|nohup|time|"
    r"timeout|nice|xargs|(ba|z)?sh|(find .*? )?-exec(dir)?)( (-|\d)\S*)*) "
)
GIT = re.compile(r"^git( -[cC] \S+| -\S+)*+ ")


class Always(NamedTuple):
    """A standing approval: what the user reads about it, the tools, and the commands of bash.

    command: None for any arguments; "git log *" for an entry of the tables; otherwise the exact
        command.
    tool: the tool that the user saw. If its definition changes, the user is asked again.
    """

    text: str
    tools: Sequence[str]
    command: str | None = None
    tool: Tool | None = None

    def covers(
        self, call: ToolCall, tool: Tool | None = None, folder: Path = Path(), root: Path = Path()
    ) -> bool:
        """Whether this approval covers a call of a tool.

        folder: the working directory of the shell. A prefix doesn't cover a command that may read
            a file outside of `root` through a symbolic link.
        """
        if call.name not in self.tools:
            return False
        if self.command is None:
            return self.tool == tool or call.name in EDITS
        arguments = call.parsed or {}
        command = str(arguments.get("command"))
        if arguments.get("background"):  # always requires approval
            return False
        if command == self.command:
            return True
        is_prefix = prefix_of(command) == self.command
        return is_prefix and not reads_through_link(command, folder, root)


def always_for(call: ToolCall, tool: Tool | None = None) -> Always:
    """The standing approval to offer for a call.

    If the program only reads, it covers any arguments ("cat *"); if the command is in the table
    `OPTIONS`, it covers the harmless options ("git log *"); if not, exactly this command.
    """
    if call.name in EDITS:
        return Always("each edit", EDITS)
    if call.name != "bash":
        return Always(f"each {call.name}", [call.name], tool=tool)
    command = str((call.parsed or {}).get("command"))
    prefix = prefix_of(command)
    return Always(prefix or "this command", ["bash"], prefix or command)


def prefix_of(command: str) -> str:
    """A prefix with "*" that covers a command safely, or "" if there's none."""
    if not ONE_COMMAND.fullmatch(command):
        return ""
    try:
        words = shlex.split(command)
    except ValueError:  # unbalanced quotes
        return ""
    if any(OUTSIDE.search(word) for word in words):
        return ""
    name, subcommand = " ".join(words[:1]), " ".join(words[:2])
    if name in READERS.split():
        is_grep = name == "grep"
        return "" if is_grep and any(map(FOLLOWS_LINKS.fullmatch, words)) else f"{name} *"
    for entry in (name, subcommand):
        if entry in OPTIONS and are_harmless(entry, words[len(entry.split()) :]):
            return f"{entry} *"
    return ""


def reads_through_link(command: str, folder: Path, root: Path) -> bool:
    """Whether a part of a command in `folder` leads outside `root`: `link/a`, `-flink`, `--file=link`."""
    words = shlex.split(command)
    parts = {part for word in words for part in re.split("[=:,]", word)}
    options = [part for part in parts if part.startswith("-")]
    parts.update(words, *({part[at:] for at in range(2, len(part))} for part in options))
    return not all((folder / part).resolve().is_relative_to(root.resolve()) for part in parts)


def are_harmless(entry: str, words: Sequence[str]) -> bool:
    """Whether `OPTIONS` allows the arguments of a command."""
    options = OPTIONS[entry].split()
    for word in words:
        if not word.startswith("-"):
            is_operand = re.fullmatch(OPERANDS.get(entry, ".*"), word)
            if not is_operand or FILE_OF_OPTIONS.match(word):
                return False
        elif not re.fullmatch(r"--|-\d+", word) and word.partition("=")[0] not in options:
            return False
    return True


def for_each_command(rule: Rule) -> Rule:
    """Let a "deny" or "ask" rule {"command": "rm *"} hold for every command of a line.

    The rule then also matches ` rm x`, `rm`, `ls; rm x`, `if rm x; then`, `sudo -n /bin/rm x`.
    """
    if callable(rule.arguments) or not rule.arguments or rule.verdict == "allow":
        return rule
    glob = rule.arguments.get("command")
    if glob is None:
        return rule
    globs = glob, glob.removesuffix(" *")

    def applies(arguments: JSON) -> bool:
        commands = commands_in(str(arguments.get("command")))
        return any(fnmatchcase(each, glob) for each in commands for glob in globs)

    return Rule(rule.verdict, rule.tool, applies, rule.reason)


def commands_in(line: str) -> Iterator[str]:
    """Yield a line, and its commands: of `sudo /bin/rm x` also `/bin/rm x` and `rm x`."""
    yield line
    for part in SEPARATORS.split(re.sub(r"\\\n|[\\'\"]", "", line)):
        command = " ".join(part.split())
        while command:
            name = re.sub(r"^\S*/", "", command)  # without the folder of the program
            yield from (command, name, GIT.sub("git ", name))
            starter = STARTER.match(command)
            command = command[starter.end() :] if starter else ""
