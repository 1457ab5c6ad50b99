"""Makes agents.ipynb: the lessons 1 to 6c as notebook cells with their output.

    python examples/lessons/make_notebook.py

You don't need Jupyter. Edit the lessons and not the notebook, and run the program again.
"""

import ast
import asyncio
import contextlib
import inspect
import io
import json
import os
import re
import textwrap
from pathlib import Path

FOLDER = Path(__file__).parent
NOTEBOOK = FOLDER / "agents.ipynb"
MAIN = 'if __name__ == "__main__":\n'
INTRODUCTION = """\
# An agent, piece by piece

Ten small programs build an agent: every lesson adds one idea to the previous lesson. The first
seven require only Python, the last three also pydantic. The model is a script, so the lessons run
offline, for free, and with reproducible output. Read a cell, predict its output, run the cell, and
solve the task.
"""
INSTALL = """\
# %pip install pydantic
# ruff: noqa: F404, F811
"""
PICTURE = "\n\n![The loop and its seven seams](../loop.svg)"
CLOSING = """\
[nano.py](../nano.py) contains the missing parts: dependencies, cancellation, three mixins and HTTP.
The remaining [lessons](README.md) explain one idea each. In a clone of the repository, `check.py`
reports whether the task of a lesson is solved; here, compare with the [solutions](solutions).
"""


def cells_of(lesson):
    """Yield three cells for a lesson: text, definitions and the program.

    Notebooks run an event loop already, so `await` replaces `run_sync` and `asyncio.run`.
    """
    text = lesson.read_text(encoding="utf-8")
    explanation = ast.get_docstring(ast.parse(text))
    number, _, title = lesson.stem.lstrip("0").partition("_")
    explanation += PICTURE if number == "2" else ""
    code = re.sub(r"(\w+)\.run_sync\(", r"await \1.run(", text.partition('"""\n\n')[2])
    defines, _, runs = code.partition(MAIN)
    yield "markdown", f"## {number}. {title.replace('_', ' ').capitalize()}\n\n{explanation}\n"
    yield "code", defines
    yield "code", textwrap.dedent(re.sub(r"asyncio\.run\((.*)\)\n", r"await \1\n", runs))


def nobody_types(prompt):
    """Replace `input` and raise EOFError, so that lesson 4b uses the script."""
    print(prompt, end="")
    raise EOFError


async def run_cell(source, names):
    """Run a cell as a notebook does. Returns its output."""
    printed = io.StringIO()
    code = compile(source, "cell", "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    with contextlib.redirect_stdout(printed):
        done = eval(code, names)  # the lessons' own code
        if inspect.isawaitable(done):
            await done
    return printed.getvalue()


async def notebook():
    """Run the cells. Returns the notebook as JSON text."""
    pairs = [("markdown", INTRODUCTION), ("code", INSTALL)]
    for lesson in sorted(FOLDER.glob("0[1-6]*.py")):
        pairs += cells_of(lesson)
    names, cells = {"__name__": "__main__", "input": nobody_types}, []
    for at, (kind, source) in enumerate([*pairs, ("markdown", CLOSING)]):
        lines = source.strip().splitlines(keepends=True)
        cell = {"cell_type": kind, "id": f"cell-{at}", "metadata": {}, "source": lines}
        if kind == "code":
            printed = (await run_cell(source, names)).splitlines(keepends=True)
            output = {"name": "stdout", "output_type": "stream", "text": printed}
            cell |= {"execution_count": None, "outputs": [output] if printed else []}
        cells.append(cell)
    language = {"language_info": {"name": "python"}}
    whole = {"cells": cells, "metadata": language, "nbformat": 4, "nbformat_minor": 5}
    return json.dumps(whole, indent=1, ensure_ascii=False) + "\n"


if __name__ == "__main__":
    os.environ.pop("OPENAI_BASE_URL", None)  # lesson 1b uses the local server
    NOTEBOOK.write_text(asyncio.run(notebook()), encoding="utf-8", newline="\n")
