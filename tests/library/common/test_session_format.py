"""agentloop/SESSIONS.md documents each record type with its fields and a valid example."""

import dataclasses
import importlib
import json
import pkgutil
import re
import subprocess
import sys
from pathlib import Path
from typing import get_args

import pytest

import agentloop
from agentloop import Agent, ScriptedModel, Session, read_log, session_path, view
from agentloop.common.found_tools import FoundTool
from agentloop.common.records import dump_record, load_record
from agentloop.common.store import HEADER
from agentloop.messages import (
    TAGS,
    Citation,
    Part,
    ToolCall,
    ToolOrigin,
    Usage,
    UserOrigin,
    tag_of,
)

PAGE = (Path(agentloop.__file__).parent / "SESSIONS.md").read_text(encoding="utf-8")
EXAMPLES = [
    line
    for block in re.findall("```json\n(.*?)```", PAGE, re.DOTALL)
    for line in block.splitlines()
]
ROWS = dict(re.findall(r"^\| `(\w+)` \| (.*) \|$", PAGE, re.MULTILINE))
for module in pkgutil.iter_modules(agentloop.__path__, "agentloop."):
    if module.name in ("agentloop.mixins", "agentloop.toolkits", "agentloop.common"):
        path = [next(iter(importlib.import_module(module.name).__path__))]
        for part in pkgutil.iter_modules(path, f"{module.name}."):
            importlib.import_module(part.name)
TYPES = {tag: cls for tag, cls in TAGS.items() if cls.__module__.startswith("agentloop.")}
PARTS = [tag_of(cls) for cls in (*get_args(Part), FoundTool)]


@pytest.mark.parametrize("tag", TYPES)
def test_each_record_type_has_an_example_and_each_field_is_named(tag):
    assert tag in [json.loads(line)["type"] for line in EXAMPLES]
    if tag in PARTS:
        return
    documented = ROWS[tag]
    for field in dataclasses.fields(TYPES[tag]):
        if field.name not in ("extra", "at", "attempts"):  # attempts are records of their own
            assert f"`{field.name}`" in documented, f"{tag}.{field.name}"


@pytest.mark.parametrize("line", EXAMPLES)
def test_each_example_is_read_as_its_type_and_written_with_the_same_fields(line):
    record = load_record(line)
    assert tag_of(type(record)) == json.loads(line)["type"]
    assert json.loads(dump_record(record)) == json.loads(line)


@pytest.mark.parametrize("value", [*get_args(UserOrigin), *get_args(ToolOrigin)])
def test_each_origin_is_documented(value):
    assert f'"{value}"' in ROWS["user"] + ROWS["tool"]


@pytest.mark.parametrize("cls", [Usage, Citation, ToolCall])
def test_each_field_of_a_nested_object_is_documented(cls):
    for field in dataclasses.fields(cls):
        if field.name not in ("extra", "parent_id"):  # not written for calls of the model
            assert f"`{field.name}`" in ROWS["assistant"], field.name


def test_the_header_is_documented():
    assert HEADER.decode() in PAGE


def test_unknown_types_and_fields_are_kept():
    for line in (
        '{"type":"later","at":1.0,"x":[1]}',
        '{"type":"run_start","at":1.0,"later":{"x":1}}',
    ):
        written = json.loads(dump_record(load_record(line)))
        assert json.loads(line).items() <= (written | written.get("extra", {})).items()


def test_the_example_deletes_a_text_from_a_session(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("USERPROFILE", str(tmp_path))

    class Saved(Session, Agent): ...

    with Saved(llm=ScriptedModel("Noted."), session="monday") as agent:
        agent.run_sync("My card is 4111 1111 1111 1111.")
    [example] = re.findall("```python\n(.*?)```", PAGE, re.DOTALL)
    exec(example, {})
    [path] = session_path("clean").parent.iterdir()
    assert "4111" not in path.read_text()
    assert [message.text for message in view(read_log(path))] == ["My card is ***.", "Noted."]


def test_a_program_reads_the_entries_of_features_that_it_does_not_use():
    program = """
import json, sys
from agentloop import load_record
print(*[type(load_record(line.encode())).__name__ for line in json.loads(sys.argv[1])])
"""
    command = [sys.executable, "-c", program, json.dumps(EXAMPLES)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.split() == [type(load_record(line)).__name__ for line in EXAMPLES]
