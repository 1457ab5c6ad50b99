"""Makes PRINTED.md: what the lessons print, for teachers.

    python examples/lessons/make_printed.py

Edit the lessons and not the page, and run the program again.
"""

import os
import re
import subprocess
import sys
from pathlib import Path

FOLDER = Path(__file__).parent
PAGE = FOLDER / "PRINTED.md"
HEAD = "# Output of the lessons\n\nLines that start with Notice contain the conclusions.\n"


def page(outputs):
    """The page for the outputs of the lessons, by file name."""
    sections = [f"\n## {name}\n\n```text\n{text}```\n" for name, text in outputs.items()]
    return HEAD + "".join(sections)


def without_places(text):
    """Take the paths of Python and of temporary folders out of a text."""
    text = text.replace(Path(sys.executable).as_posix(), "python")
    return re.sub(r'File "[^"]*[/\\]', 'File "', text)


def output(lesson):
    """Run a lesson with no API keys and no keyboard. Returns what it prints."""
    environment = {k: v for k, v in os.environ.items() if not k.endswith(("_API_KEY", "_BASE_URL"))}
    settings = {"stdin": subprocess.DEVNULL, "capture_output": True, "encoding": "utf-8"}
    done = subprocess.run([sys.executable, lesson], env=environment, check=True, **settings)
    return without_places(done.stdout)


if __name__ == "__main__":
    outputs = {lesson.stem: output(lesson) for lesson in sorted(FOLDER.glob("[0-9]*.py"))}
    PAGE.write_text(page(outputs), encoding="utf-8", newline="\n")
