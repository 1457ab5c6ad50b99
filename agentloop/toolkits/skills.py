"""Skills: folders of instructions that a model loads when a task needs them.

Copy with: the core.

    class MyAgent(Skills, Agent): ...

    agent = MyAgent(llm=..., tools=[...], skills=discover_skills("skills"))

A skill is a folder with a SKILL.md: front matter (name, description), then the instructions. The
model reads the other files of a skill when it needs them. `allowed-tools` has no effect here,
because programs disagree on what it means; the recipe examples/recipes/skills.py denies all other
tools.
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
    "Read the instructions for one kind of task. Before you begin a task that matches a skill, "
    "read its instructions. Paths in the instructions are relative to the skill's folder:"
)

# Front matter, in the part of YAML that skills use: quotes, lists, values of several lines
HEAD = re.compile(r"(?ms)---\n(.*?)^---$")
# A key and its value: the rest of the line, and the lines after it that are indented, empty, or
# items of a list
FIELD = re.compile(r"(?m)^([\w-]+) *:(?: *[>|][+-]?$)?(.*(?:\n[ \t-].*|\n$)*)")


@dataclass(frozen=True)
class Skill:
    """Instructions for one kind of task: a folder with a SKILL.md.

    fields: everything in the front matter.
    """

    name: str
    description: str
    folder: Path
    fields: Mapping[str, str] = field(default_factory=dict[str, str], hash=False)


def discover_skills(folder: str | Path) -> list[Skill]:
    """Read the skills in a folder: each of its folders that has a SKILL.md is one.

    Raises ValueError if a skill lacks a field; the message says what to write, and where.
    """
    skills = dict[str, Skill]()
    for path, head, _ in read_folder(folder, "*/SKILL.md", "name", "description"):
        name = head["name"]
        if name in skills:
            raise ValueError(f"{path}: {skills[name].folder} has the name {name!r} too: rename one")
        skills[name] = Skill(name, head["description"], path.parent, head)
    return [*skills.values()]


def read_folder(
    folder: str | Path, pattern: str, *required: str
) -> Iterator[tuple[Path, dict[str, str], str]]:
    """Read the files of a folder that match a pattern: path, fields, and the rest of the text.

    Fields are `key: value` lines between two `---` at the beginning; a value of several lines is
    joined into one. Raises ValueError if a required field is missing, and FileNotFoundError if
    there's no such folder.
    """
    for path in sorted(Path(folder).resolve(strict=True).glob(pattern)):
        if not (path.is_file() and path.resolve().parent == path.parent.resolve()):
            raise ValueError(f"{path} isn't a regular file: a link must stay in its folder")
        head, text = "", path.read_text("utf-8-sig")
        if match := HEAD.match(text):
            head, text = match[1], text[match.end() :]
        fields = dict[str, str]()
        for key, value in FIELD.findall(head):
            fields[key] = " ".join(value.split()).strip("'\"")
        for key in required:
            if not fields.get(key):
                raise ValueError(f"{path}: {key} is missing: write '{key}: ...' between two ---")
        yield path, fields, text.strip()


class Skills(Loop):
    """Offers the tool `skill`, which lists skills and returns their instructions and files.

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
    """Find a file in a folder. Raises ToolError if it isn't there."""
    file = (folder / path).resolve()
    if not (file.is_relative_to(folder.resolve()) and file.is_file()):
        raise ToolError(
            f"{path!r:.200} isn't a file in {folder.name}. Paths are relative to this folder, and "
            "links must stay inside."
        )
    return file
