"""Task: show the user what an edit changes, as a diff."""

import sys
import tempfile
from difflib import unified_diff
from functools import partial
from pathlib import Path

from agentloop import Agent, ScriptedModel, TextEvent, ToolCallEvent, ToolResultEvent, call
from agentloop.mixins.approval import Approval, Rule
from agentloop.toolkits.files import Workspace
from agentloop.toolkits.shell import Shell

PROJECT = {
    "pancakes.py": "def eggs(pancakes):  # 8 pancakes take 4 eggs\n    return pancakes // 4\n",
    "check.py": "from pancakes import eggs\n\nassert eggs(20) == 10\nprint('the check passes')\n",
}
CHECK = f'"{Path(sys.executable).as_posix()}" -B check.py'
SCRIPT = [
    call("bash", command=CHECK),
    call("read", path="pancakes.py"),
    call("read", path="check.py"),
    call("edit", path="check.py", old_text="== 10", new_text="== 5"),
    call("edit", path="pancakes.py", old_text="// 4", new_text="// 2"),
    call("bash", command=CHECK),
    call("bash", command="git push --force"),
    "eggs() divided by 4; it is 2 pancakes for an egg. The check passes now.",
]
PERSON = iter(["n", "y"])


class CodingAgent(Approval, Agent):
    approval_rules = (Rule("allow", "bash"),)  # `Shell` restricts the commands


def approve(folder, call, reason):
    arguments = call.parsed
    file = Path(folder, arguments["path"])
    old = file.read_text(encoding="utf-8") if file.exists() else ""
    if call.name == "edit":
        new = old.replace(arguments["old_text"], arguments["new_text"])
    else:
        new = arguments["content"]
    print(f"May I change {file.name}?")
    print("\n".join(unified_diff(old.splitlines(), new.splitlines(), lineterm="", n=0)))
    answer = next(PERSON)
    print(f"y/n: {answer}")
    return answer == "y"


def report(event):
    match event:
        case ToolCallEvent():
            print(f"> {event.tool} {' '.join(map(str, event.args.values()))}")
        case ToolResultEvent():
            print("  " + event.result.rstrip().replace("\n", "\n  "))
        case TextEvent():
            print(event.content)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        for name, text in PROJECT.items():
            Path(folder, name).write_text(text, encoding="utf-8")
        agent = CodingAgent(
            llm=ScriptedModel(*SCRIPT),
            tools=[*Workspace(folder).tools, *Shell(folder, allow=[CHECK]).tools],
            approval_callback=partial(approve, folder),
            system_prompt="You are a careful programmer. Run the check before and after a change.",
            listeners=[report],
        )
        agent.run_sync("The check fails. Fix it.")
    print("Notice: the question precedes the write, so the file is still unchanged.")
