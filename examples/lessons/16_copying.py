"""Problem: the library does almost what you need, and the rest is inside of it.

Then copy it. `agentloop bundle` writes the core and the parts that you name into one
file, which needs neither this library nor its other parts. It is yours: this lesson adds a line to
the loop, which is where you found it, and runs a program with it.

`--check` says later which parts you have changed; `--upgrade` renews the others.

Try: put the line into `context` or `call_tool` instead, so that it prints what goes through there.
"""

import subprocess
import sys
import tempfile
from pathlib import Path

PROGRAM = """
import sys
from my_agent import Agent, ScriptedModel, call, tool

PANTRY = {"flour": 900, "eggs": 12}

@tool
def stock(item: str) -> int:
    "How much of an item is in the pantry."
    return PANTRY[item]

model = ScriptedModel(call("stock", item="eggs"), "There are 12 eggs.")
print(Agent(llm=model, tools=[stock]).run_sync("How many eggs are there?"))
print("agentloop is imported:", "agentloop" in sys.modules)
"""
LOOP = "            for _ in range(self.max_iterations):\n"
NEW_LINE = '                print("the loop goes round")\n'


def python(*arguments, folder):
    done = subprocess.run([sys.executable, *arguments], cwd=folder, capture_output=True, text=True)
    if done.stderr:
        raise SystemExit(done.stderr)
    return done.stdout.strip()


def bundle(*arguments, folder):
    print("$ agentloop bundle", *arguments)
    return python("-m", "agentloop", "bundle", *arguments, folder=folder)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        print(bundle("agent", "scripted", "-o", "my_agent.py", folder=folder))
        file = Path(folder, "my_agent.py")
        text = file.read_text(encoding="utf-8")
        print(f"{len(text.splitlines())} lines, and the loop is in there {text.count(LOOP)} time.")
        file.write_text(text.replace(LOOP, LOOP + NEW_LINE), encoding="utf-8")

        Path(folder, "my_program.py").write_text(PROGRAM, encoding="utf-8")
        print("$ python my_program.py")
        print(python("my_program.py", folder=folder))

        changes = bundle("--check", "my_agent.py", folder=folder).splitlines()
        print("\n".join(line for line in changes if line.endswith("changed by you")))
    print("Notice: the loop went round twice, as in lesson 2: a call, then the answer.")
    print("Notice: of the parts of the file, only loop.py is not as shipped any more.")
