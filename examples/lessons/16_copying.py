"""Problem: the library does almost what you need, and what you'd change is inside the library.

So copy it. `examples/nano.py` is the whole idea in one file: loop, tools, schemas, a done tool,
compaction, a model over HTTP. Copy the file into your project and change it; this lesson copies
nano.py, prints its loop, and runs a program that doesn't import the library.

If you need more, `agentloop bundle` writes the parts that you choose into one file, and beside it a
copy that you leave unchanged. `--upgrade` merges a newer version into your changes.

Task: bundle `session` too, add a class of your own to the file, and run it twice. The output is `0
messages so far`, then `2 messages so far`. How many lines of the file are missing in the unchanged
copy, `my_agent.shipped`?
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
    "Return the quantity of an ingredient in the pantry."
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
    print("Notice: the loop above is in your own file; its `for` is that of lesson 4.")
    print("Notice: a bundle has the library's own files; nano.py was written to be read.")
