"""Task: bundle `session` too, add a class of your own to the file, and run it twice."""

import subprocess
import sys
import tempfile
from pathlib import Path

YOURS = """
class MyAgent(Session, Agent):
    session = "eggs"
    session_dir = "."


if __name__ == "__main__":
    agent = MyAgent(llm=ScriptedModel("There are 12 eggs."))
    print(f"{len(agent.messages)} messages so far")
    print(agent.run_sync("How many eggs are there?"))
"""


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
        print(bundle("agent", "session", "scripted", "-o", "my_agent.py", folder=folder))
        with Path(folder, "my_agent.py").open("a", encoding="utf-8", newline="\n") as file:
            file.write(YOURS)
        for _ in range(2):
            print("$ python my_agent.py")
            print(python("my_agent.py", folder=folder))
        shipped = Path(folder, "my_agent.shipped").read_text(encoding="utf-8").splitlines()
        file = Path(folder, "my_agent.py").read_text(encoding="utf-8").splitlines()
        print(f"{len(file) - len(shipped)} lines differ from the shipped copy")
    print("Notice: an upgrade merges newer code into the file, and keeps these lines.")
