"""Skills: folders of instructions that a model loads when a task needs them.

Copy with: the core.

    class MyAgent(Skills, Agent): ...

    agent = MyAgent(llm=..., tools=[...], skills=discover_skills("skills"))

A skill is a folder with a SKILL.md: front matter (name, description), then the instructions. Other
files in it are read when they are needed. `allowed-tools` denies nothing here, as programs do not
agree on what it means: a recipe, examples/recipes/skills.py, denies the other tools.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from ..errors import ToolError
from ..loop import Loop
from ..messages import JSON
from ..tools import Tool
from ..waiting import call_function

SKILL = (
    "Read the instructions for one kind of task. Before you begin a task that fits one of these, "
    "read its instructions; the paths of files in them are relative to their own folder:"
)

# Front matter, with the part of YAML that such files use: quoted values, lists, values of several
# lines.
HEAD = re.compile(r"(?ms)---\n(.*?)^---$")
# A key, and its value with the indented lines, the lines of a list and the empty ones below it.
FIELD = re.compile(r"(?m)^([\w-]+) *:(?: *[>|][+-]?$)?(.*(?:\n[ \t-].*|\n$)*)")


@dataclass(frozen=True)
class Skill:
    """Instructions for one kind of task: a folder with a SKILL.md.

    fields: the complete front matter.
    """

    name: str
    description: str
    folder: Path
    fields: Mapping[str, str] = field(default_factory=dict[str, str], hash=False)


def discover_skills(folder: str | Path) -> list[Skill]:
    """Read the skills in a folder: every subfolder with a SKILL.md is a skill.

    Raises ValueError with the file, the key and the remedy.
    """
    found = dict[str, Skill]()
    for path, head, _ in read_folder(folder, "*/SKILL.md", "name", "description"):
        name = head["name"]
        if name in found:
            raise ValueError(f"{path}: {found[name].folder} has the name {name!r} too: rename one")
        found[name] = Skill(name, head["description"], path.parent, head)
    return [*found.values()]


def read_folder(
    folder: str | Path, pattern: str, *required: str
) -> Iterator[tuple[Path, dict[str, str], str]]:
    """Read the matching files of a folder; yield the path, the fields and the remaining text.

    Fields are `key: value` lines between two `---` at the beginning. Values of several lines are
    joined into one line. Raises ValueError with the file, the key and the remedy if a required
    field is missing, and FileNotFoundError if the folder does not exist.
    """
    for path in sorted(Path(folder).resolve(strict=True).glob(pattern)):
        if not (path.is_file() and path.resolve().parent == path.parent.resolve()):
            raise ValueError(f"{path}: not a regular file: a link must stay in its folder")
        head, text = "", path.read_text("utf-8-sig")
        if found := HEAD.match(text):
            head, text = found[1], text[found.end() :]
        fields = dict[str, str]()
        for key, value in FIELD.findall(head):
            fields[key] = " ".join(value.split()).strip("'\"")
        for key in required:
            if not fields.get(key):
                raise ValueError(f"{path}: {key} is missing: write '{key}: ...' between two ---")
        yield path, fields, text.strip()


class Skills(Loop):
    """Offers skills: the model sees a list, loads instructions with `skill`, and reads their files.

    skills: the result of `discover_skills`.
    """

    skills: Sequence[Skill] = ()

    def toolset(self) -> Sequence[Tool]:
        tools = super().toolset()
        return [*tools, SkillTool(self.skills)] if self.skills else tools


class SkillTool(Tool):
    """The tool `skill`, which reads files in the folders of skills."""

    def __init__(self, skills: Sequence[Skill]) -> None:
        description = SKILL
        for skill in skills:
            description += f"\n- {skill.name}: {skill.description}"
        self.folders = {skill.name: skill.folder for skill in skills}
        properties = {
            "name": {"type": "string", "enum": [*self.folders]},
            "path": {"type": "string", "default": "SKILL.md"},
        }
        parameters = {"type": "object", "properties": properties, "required": ["name"]}
        super().__init__(
            "skill", description, parameters, parallel=False, idempotent=True, read_only=True
        )

    async def execute(self, args: JSON, overrides: object = None) -> str:
        file = find(self.folders[args["name"]], args.get("path", "SKILL.md"))
        return await call_function(file.read_text, "utf-8-sig", "replace")


def find(folder: Path, path: str) -> Path:
    """Return the path of a file, links resolved. Raises ToolError if the file does not exist."""
    found = (folder / path).resolve()
    if not (found.is_relative_to(folder.resolve()) and found.is_file()):
        raise ToolError(
            f"{path!r:.200} is no file in {folder.name}. Paths are relative to that folder, and "
            "links stay in it."
        )
    return found
