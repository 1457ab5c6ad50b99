"""Problem: the library does almost what you need, and the difference is inside the library.

Then copy it. `examples/nano.py` contains the whole idea in one file: loop, tools, schemas, a done
tool, compaction, a model over HTTP. Copy the file into your project and change it as needed; this
lesson copies it, prints the loop that you would change, and runs a program without the library.

For more features, `agentloop bundle` writes the parts of your choice into one file. It keeps an
unchanged copy next to the file, and `--upgrade` merges a newer version into your changes.

Task: bundle `session` too, add a class of your own to the file, and run it twice. The output is `0
messages so far`, then `2 messages so far`. How many lines does the file have that the unchanged
copy, `my_agent.shipped`, does not have?
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
    "Return the amount of an item in the pantry."
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
    print("Notice: the loop above is in your own file; its `for` is the one of lesson 4.")
    print("Notice: a bundle contains the library's own files; nano.py is written for reading.")
