"""What "always" allows where the chat asks for a call, and what is asked for in each mode."""

import re
from collections.abc import Mapping, Sequence
from glob import escape
from typing import Literal, NamedTuple

from ..messages import ToolCall
from ..mixins.approval import PLAIN

EDITS = ("write", "edit", "multi_edit")
# The modes of the chat, from one to the next: `approval_mode`, and the tools that run unasked
MODES: Mapping[str, tuple[Literal["ask", "plan"], Sequence[str]]] = {
    "accept edits": ("ask", EDITS),
    "plan": ("plan", ()),
    "ask": ("ask", ()),
}
RUN_OTHERS = frozenset(  # programs whose arguments may name another program
    [
        *("bash", "sh", "zsh", "dash", "ksh", "fish", "busybox", "cmd", "powershell", "pwsh"),
        *("env", "sudo", "doas", "su", "command", "builtin", "exec", "eval", "source", "."),
        *("time", "timeout", "nice", "nohup", "setsid", "stdbuf", "watch", "xargs", "parallel"),
        *("python", "node", "deno", "bun", "npx", "uv", "uvx", "perl", "ruby", "php", "lua", "awk"),
        *("find", "fd", "ssh", "docker", "podman"),
    ]
)


class Always(NamedTuple):
    """What "always" allows: how to say it, the tools, and globs for arguments of their calls."""

    said: str
    tools: Sequence[str]
    arguments: Mapping[str, str] | None = None


def always_for(call: ToolCall) -> Always:
    """Return what "always" allows where somebody is asked for this call.

    A plain command allows its program with any plain arguments: "git log" allows "git *". A command
    that is not plain, or whose program may run another, allows this very text only.
    """
    if call.name in EDITS:
        return Always("each edit", EDITS)
    if call.name != "bash":
        return Always(f"each {call.name}", [call.name])
    command = str((call.parsed or {}).get("command"))
    program, _, more = command.partition(" ")
    is_spelled_out = re.fullmatch(r"[\w./+-]+", program)  # a quote in a name may hide which it is
    name = re.sub(r"(?<=\w)[\d.]*(\.exe)?$", "", program.split("/")[-1].lower())  # python3.11
    if more and is_spelled_out and name not in RUN_OTHERS and PLAIN.fullmatch(command):
        return Always(f"{program} *", ["bash"], {"command": f"{program} *"})
    return Always("this command", ["bash"], {"command": escape(command)})
