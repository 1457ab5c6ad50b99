"""Problem: an agent that may change your files can do damage.

`Workspace` keeps the agent to the files of one folder, `Shell` to the commands that you permit.
`Approval` asks the user before every call that may have effects. Any answer other than True denies
the call, and the model reads it. The lesson is a complete coding agent; the command `agentloop` is
a larger one.

The model and the user are scripts here: replace `next(PERSON)` with `input()`, the script with a
model of lesson 14, and the folder with your own.

Task: show the user what an edit changes, as a diff: `- return pancakes // 4` and `+ return pancakes
// 2`.
"""

import sys
import tempfile
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


def approve(call, reason):
    print(f"May I {call.name}?")
    for argument, value in call.parsed.items():
        print(f"    {argument}: {value}")
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
            approval_callback=approve,
            system_prompt="You are a careful programmer. Run the check before and after a change.",
            listeners=[report],
        )
        agent.run_sync("The check fails. Fix it.")
    print("Notice: the shortcut, changing the check, was denied, and the model continued.")
    print("Notice: a command outside the list is refused without a question.")
