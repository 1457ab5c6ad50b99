"""Install the peers, run all rows of all programs, and write the page."""

import argparse
import ast
import json
import platform
import re
import subprocess
import sys
import tokenize
import venv
from datetime import date
from pathlib import Path

from . import page

ROOT = Path(__file__).parents[3]
BUILD = ROOT / "build" / "survival"
RESULTS = page.FOLDER / "results.json"
OURS = "agentloop-micro"
DBOS = "DBOS"
PROGRAMS = {  # name: title, environment, packages whose versions the page shows
    "agentloop": ("agentloop", "agentloop", (OURS,)),
    "nano": ("nano.py", "agentloop", (OURS,)),
    "micro": ("micro.py", "agentloop", (OURS,)),
    "pydantic_ai": ("Pydantic AI", "peers", ("pydantic-ai-slim",)),
    "pydantic_ai_dbos": (f"Pydantic AI + {DBOS}", "peers", ("pydantic-ai-slim", "dbos")),
    "openai_agents": ("OpenAI Agents", "peers", ("openai-agents",)),
    "openai_agents_dbos": (
        f"OpenAI Agents + {DBOS}",
        "peers",
        ("openai-agents", "dbos-openai-agents", "dbos"),
    ),
    "langgraph": ("LangGraph", "peers", ("langgraph", "langchain", "langgraph-checkpoint-sqlite")),
    "smolagents": ("smolagents", "peers", ("smolagents",)),
    "strands": ("Strands", "strands", ("strands-agents",)),
}


def environment(name):
    """Return the Python of a virtual environment, which is made if it doesn't exist."""
    folder = BUILD / name
    python = folder / "bin" / "python"
    if not (folder / "done").exists():
        print(f"installing {name} into {folder}", flush=True)
        venv.create(folder, with_pip=True, clear=True)
        wanted = ["-e", str(ROOT)]
        if name != "agentloop":
            wanted = ["-r", str(page.FOLDER / "requirements" / f"{name}.txt")]
        subprocess.run([python, "-m", "pip", "install", "-q", *wanted], check=True)
        (folder / "done").touch()
    return python


def versions(python, packages):
    code = "import importlib.metadata as m, sys; print(*map(m.version, sys.argv[1:]))"
    output = subprocess.check_output([python, "-c", code, *packages], text=True)
    return dict(zip(packages, output.split(), strict=True))


def code_lines(file):
    """Return the number of logical lines: however code is wrapped, without docstrings."""
    with file.open("rb") as source:
        lines = sum(token.type == tokenize.NEWLINE for token in tokenize.tokenize(source.readline))
    tree = ast.parse(file.read_text(encoding="utf-8"))
    expressions = [node for node in ast.walk(tree) if isinstance(node, ast.Expr)]
    return lines - sum(isinstance(node.value, ast.Constant) for node in expressions)


def describe(name, rows):
    """Return what the page shows of a program."""
    title, where, packages = PROGRAMS[name]
    file = page.FOLDER / "programs" / f"{name}.py"
    docs = re.findall(r"https?://[^\s)]+", file.read_text(encoding="utf-8").split('"""')[1])
    return {
        "title": title,
        "docs": docs,
        "lines": code_lines(file),
        "versions": versions(environment(where), packages),
        "rows": rows,
    }


def run(name):
    """Run all rows of a program in its environment, and return them."""
    file = BUILD / f"{name}.json"
    file.unlink(missing_ok=True)
    command = [environment(PROGRAMS[name][1]), "-m", f"{__package__}.rows", name, file]
    path = f"{ROOT}:{ROOT / 'examples'}"  # micro.py imports nano.py
    settings = {"PATH": "/usr/bin:/bin", "PYTHONPATH": path, "HOME": str(BUILD)}
    if DBOS in PROGRAMS[name][0]:  # whose start takes seconds
        settings["SURVIVAL_MOST"] = "12"
    subprocess.run(command, cwd=ROOT, env=settings, check=True)
    return json.loads(file.read_text())


def main():
    parser = argparse.ArgumentParser(prog=f"python -m {__package__}")
    parser.add_argument("--only", nargs="*", choices=PROGRAMS, default=list(PROGRAMS))
    BUILD.mkdir(parents=True, exist_ok=True)
    results = {"programs": {}}
    if RESULTS.exists():
        results = json.loads(RESULTS.read_text(encoding="utf-8"))
    for name in parser.parse_args().only:
        results["programs"][name] = describe(name, run(name))
        results |= {"date": f"{date.today()}", "python": platform.python_version()}
        ordered = {key: results["programs"][key] for key in PROGRAMS if key in results["programs"]}
        results["programs"] = ordered
        RESULTS.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
    page.write(results)
    print(f"wrote {page.FOLDER / 'README.md'}")


if __name__ == "__main__":
    sys.exit(main())
