"""Problem: the library does almost what you need, and the rest is inside of it.

Then copy it. `examples/nano.py` is the whole idea in one file: loop, tools, schemas, a done tool,
compaction, a model over HTTP. Copy it beside your program and change what you like; this lesson
does the first, prints the loop that you would change, and runs a program without the library.

For more than that, `agentloop bundle` writes the parts that you name into one file.
It keeps a copy as shipped beside it, and `--upgrade` merges what is newer into what you changed.

Task: bundle `session` too, add a class of your own to the file, and run it twice. It prints `0
messages so far`, then `2 messages so far`. How many lines has the file that the copy as shipped,
`my_agent.shipped`, has not?
"""

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

NANO = Path(__file__).parents[1] / "nano.py"
PROGRAM = """
import inspect
import sys
from my_agent import Agent, Loop, ScriptedModel, call, tool

PANTRY = {"flour": 900, "eggs": 12}

@tool
def stock(item: str) -> int:
    "How much of an item is in the pantry."
    return PANTRY[item]

print(inspect.getsource(Loop.run))
model = ScriptedModel(call("stock", item="eggs"), "There are 12 eggs.")
print(Agent(llm=model, tools=[stock]).run_sync("How many eggs are there?"))
print("agentloop is imported:", "agentloop" in sys.modules)
"""


def python(*arguments, folder):
    done = subprocess.run([sys.executable, *arguments], cwd=folder, capture_output=True, text=True)
    if done.stderr:
        raise SystemExit(done.stderr)
    return done.stdout.strip()


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        shutil.copy(NANO, Path(folder, "my_agent.py"))
        Path(folder, "my_program.py").write_text(PROGRAM, encoding="utf-8")
        print("$ cp nano.py my_agent.py; python my_program.py")
        print(python("my_program.py", folder=folder))

        print("$ agentloop bundle agent session scripted -o more.py")
        bundle = ["-m", "agentloop", "bundle", "agent", "session", "scripted", "-o", "more.py"]
        print(python(*bundle, folder=folder))
    print("Notice: the loop above is in a file of your own; its `for` is that of lesson 4.")
    print("Notice: a bundle is the library's own files; nano.py is written to be read.")
