"""A shell in a sandbox: bwrap, docker, podman or ssh.

Use a sandbox if nobody looks at each command: a Shell alone isn't a security boundary, because a
command may do what you may do. In this sandbox, commands can run the programs of the machine and
write to one folder; they see neither the network, nor the home directory, nor other processes. You
can still kill them: the shell exits when its input ends. The tools of a Workspace keep to one
folder, too. `python sandbox.py` uses bwrap (`apt install bubblewrap`), and prints bwrap's error if
the kernel doesn't allow a sandbox.
"""

import shutil
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from agentloop import Agent, ScriptedModel, ToolMessage, call
from agentloop.toolkits.files import Workspace
from agentloop.toolkits.shell import Shell


def in_bwrap(folder: str) -> list[str]:
    """A command for a shell that can only write to one folder. It needs Linux, and no daemon."""
    programs = ["--ro-bind", "/usr", "/usr", "--ro-bind", "/etc", "/etc"]
    for link in ("bin", "sbin", "lib", "lib64"):
        programs += ["--symlink", f"usr/{link}", f"/{link}"]
    own = ["--dev", "/dev", "--proc", "/proc", "--tmpfs", "/tmp", "--bind", folder, folder]
    return ["bwrap", *programs, *own, "--unshare-all", "--die-with-parent", "bash"]


def in_docker(name: str) -> list[str]:
    """A command for a shell in a running container that has the folder at /work:

    docker run -d --rm --init --name box --network none -v "$PWD:/work" python:3.13 sleep inf
    """
    return ["docker", "exec", "-i", name, "bash"]  # Shell("/work", command=in_docker("box"))


def over_ssh(host: str) -> list[str]:
    return ["ssh", "-o", "BatchMode=yes", host, "bash"]


if __name__ == "__main__":
    if shutil.which("bwrap") is None:
        sys.exit("bwrap is not installed.")
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
        agent = Agent(llm=ScriptedModel(*script, "I could not get out."), tools=tools)
        print(agent.run_sync("Try to get out."))
        for message in agent.messages:
            if isinstance(message, ToolMessage):
                print("--", message.text)
