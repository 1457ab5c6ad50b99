"""Problem: an agent that works on your files can do harm.

`Workspace` gives it the files of one folder and no others, `Shell` the commands that you allow.
`Approval` asks the person before each call that may change something. Anything but True means no,
and the model reads that. This is all of a coding agent; `agentloop` is a larger one.

The model is a script here, and so is the person who is asked: put `input()` in place of
`next(PERSON)`, a model of lesson 14 in place of the script, and your folder in place of this one.

Task: show the person what an edit changes in the file, as a diff: `- return pancakes // 4` and `+
return pancakes // 2`.
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
    [call("read", path="pancakes.py"), call("read", path="check.py")],
    call("edit", path="check.py", old_text="== 10", new_text="== 5"),
    call("edit", path="pancakes.py", old_text="// 4", new_text="// 2"),
    call("bash", command=CHECK),
    call("bash", command="git push --force"),
    "eggs() divided by 4; it is 2 pancakes for an egg. The check passes now.",
]
PERSON = iter(["n", "y"])


class CodingAgent(Approval, Agent):
    approval_rules = (Rule("allow", "bash"),)  # `Shell` has a list of its own


def approve(call, reason):
    print(f"May I {call.name}?")
    for argument, value in call.parsed.items():
        print(f"    {argument}: {value}")
    answer = next(PERSON)
    print(f"y/n: {answer}")
    return answer == "y"


def tell(event):
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
            listeners=[tell],
        )
        agent.run_sync("The check fails. Mend it.")
    print("Notice: the easy way out, to change the check, was denied, and the model went on.")
    print("Notice: a command that is not in the list is refused, and nobody is asked.")
