"""A shell in a sandbox: bwrap, docker, podman or ssh stand in front of it.

One wants it as soon as nobody looks at each command: a Shell alone is no boundary, as it does what
your user can. Here a command sees this machine's programs, and may write in one folder only; it has
no network, no home and no process but its own. It stays killable: its input ends, and so does it.
A folder of a Workspace is a boundary too, so its tools may be offered beside the shell.

`python sandbox.py` uses bwrap (`apt install bubblewrap`), and says so where the kernel refuses it.
"""

import shutil
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from agentloop import Agent, ScriptedModel, ToolMessage
from agentloop.models.scripted import call
from agentloop.toolkits.files import Workspace
from agentloop.toolkits.shell import Shell


def in_bwrap(folder: str) -> list[str]:
    """Return what leads to a shell that may write in a folder. Linux, without any daemon."""
    programs = ["--ro-bind", "/usr", "/usr", "--ro-bind", "/etc", "/etc"]
    for link in ("bin", "sbin", "lib", "lib64"):
        programs += ["--symlink", f"usr/{link}", f"/{link}"]
    own = ["--dev", "/dev", "--proc", "/proc", "--tmpfs", "/tmp", "--bind", folder, folder]
    return ["bwrap", *programs, *own, "--unshare-all", "--die-with-parent", "bash"]


def in_docker(name: str) -> list[str]:
    """Return what leads into a container. It runs already, and has the folder as /work:

    docker run -d --rm --init --name box --network none -v "$PWD:/work" python:3.13 sleep inf
    """
    return ["docker", "exec", "-i", name, "bash"]  # Shell("/work", command=in_docker("box"))


def over_ssh(host: str) -> list[str]:
    return ["ssh", "-o", "BatchMode=yes", host, "bash"]


if __name__ == "__main__":
    if shutil.which("bwrap") is None:
        sys.exit("This machine has no bwrap.")
    with TemporaryDirectory() as project:
        folder = str(Path(project).resolve())
        shell = Shell(folder, command=in_bwrap(folder))
        script = [
            call("bash", command="echo hello > note.txt; ls / /home; echo $$"),
            call("bash", command="touch /etc/evil; cat < /dev/tcp/192.0.2.1/80"),
            call("bash", command="while :; do date; sleep 0.1; done", background=True),
            call("read", path="note.txt"),
        ]
        tools = [*shell.tools, *Workspace(folder).tools]
        agent = Agent(llm=ScriptedModel(*script, "Nothing got out."), tools=tools)
        print(agent.run_sync("Try to get out."))
        for message in agent.messages:
            if isinstance(message, ToolMessage):
                print("--", message.text)
