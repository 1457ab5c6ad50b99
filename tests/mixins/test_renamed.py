"""Renamed mixins: deprecated names work, and sessions of version 0.6.0 remain readable."""

import subprocess
import sys
from importlib import import_module

import pytest

import agentloop
from agentloop import Agent, InstructionFiles, MessageQueue, ScriptedModel, Session
from agentloop.settings import SettingError
from agentloop.toolkits.subagent import SubAgents

RENAMED = {
    "inbox.Inbox": "message_queue.MessageQueue",
    "memory.Memory": "instruction_files.InstructionFiles",
}
SESSION = """\
{"type":"session","schema":2}
{"type":"run_start","at":1.0}
{"type":"user","content":"x"}
{"type":"reminded","at":2.0,"name":"Keep it short."}
{"type":"user","content":"Keep it short.","origin":"reminder"}
{"type":"assistant","content":"y"}
{"type":"run_end","at":3.0,"stop_reason":"completed","text":"y"}
{"type":"sent","at":4.0,"message":{"type":"user","content":"more","origin":"sent","sent_id":"9f"}}
"""


@pytest.mark.parametrize(("old", "new"), RENAMED.items())
def test_a_deprecated_name_is_its_successor_and_warns_once_per_import(old, new):
    old_module, old_name = old.split(".")
    new_module, new_name = new.split(".")
    successor = getattr(import_module(f"agentloop.mixins.{new_module}"), new_name)
    with pytest.warns(DeprecationWarning, match=new_name) as warnings:
        assert getattr(agentloop, old_name) is successor
    assert warnings[0].filename == __file__
    sys.modules.pop(f"agentloop.mixins.{old_module}", None)
    with pytest.warns(DeprecationWarning, match=f"{new_name} .*{new_module}"):
        module = import_module(f"agentloop.mixins.{old_module}")
    assert getattr(module, old_name) is successor
    assert old_name not in agentloop.__all__


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("newest_prompt", "newest_prompt_index"),
        ("sessions", "list_sessions"),
        ("validate", "validate_messages"),
    ],
)
def test_a_renamed_function_warns_and_names_the_version_of_its_removal(old, new):
    with pytest.warns(DeprecationWarning, match=rf"{old} .* 1\.1: use {new}"):
        assert getattr(agentloop, old) is getattr(agentloop, new)


def test_renamed_settings_of_several_mixins_work_in_one_class(tmp_path):
    class Boss(SubAgents, InstructionFiles, Agent): ...

    old = {"memory": ["a.md"], "memory_dir": tmp_path, "memory_tokens": 9, "sub_agents_deep": 2}
    old |= {"sub_agents_at_once": 1, "cancel_grace": 3}
    with pytest.warns(DeprecationWarning, match="setting") as warnings:
        boss = Boss(llm=ScriptedModel(), **old)
    assert len(warnings) == len(old)
    new = boss.instruction_files, boss.instruction_dir, boss.instruction_tokens
    assert new == (["a.md"], tmp_path, 9)
    assert (boss.max_sub_agent_depth, boss.max_sub_agents, boss.cancel_timeout) == (2, 1, 3)


def test_the_warning_about_a_renamed_setting_names_the_line_that_uses_the_setting():
    def construct():
        InstructionFiles(llm=ScriptedModel(), memory=["a.md"])

    def fork():
        InstructionFiles(llm=ScriptedModel()).fork(memory=["a.md"])

    def assign():
        InstructionFiles(llm=ScriptedModel()).memory = ["a.md"]

    def derive():
        type("Mine", (InstructionFiles,), {"memory": ["a.md"]})

    for use in (construct, fork, assign, derive):
        with pytest.warns(DeprecationWarning, match="memory") as warnings:
            use()
        [warning] = warnings
        assert warning.filename == __file__
        assert warning.lineno == use.__code__.co_firstlineno + 1


def test_both_names_of_a_setting_are_an_error_that_contains_both():
    both = {"instruction_files": ["new.md"], "memory": ["old.md"]}
    with pytest.raises(SettingError, match="memory is now instruction_files"):
        InstructionFiles(llm=ScriptedModel(), **both)
    with pytest.raises(SettingError, match="memory is now instruction_files"):
        InstructionFiles(llm=ScriptedModel()).fork(**both)
    with pytest.raises(SettingError, match="memory is now instruction_files"):
        type("Mine", (InstructionFiles,), both)


def test_an_assignment_to_a_renamed_setting_changes_the_setting(tmp_path):
    agent = InstructionFiles(llm=ScriptedModel(), instruction_dir=tmp_path)
    with pytest.warns(DeprecationWarning, match="use instruction_files"):
        agent.memory = ["new.md"]
    assert agent.instruction_files == agent.fork().instruction_files == ["new.md"]


def test_assignments_to_attributes_reach_the_other_base_classes_of_an_agent():
    class Tracked:
        def __setattr__(self, name, value):
            super().__setattr__(name, value)
            vars(self).setdefault("changed", []).append(name)

    agent = type("TrackedAgent", (InstructionFiles, Tracked), {})(llm=ScriptedModel())
    agent.nickname = "Ada"
    assert "nickname" in agent.changed


def test_a_subclass_may_have_its_own_setting_with_a_deprecated_name():
    class Mine(InstructionFiles):
        memory: str = "none"

    agent = Mine(llm=ScriptedModel(), memory="vectors")
    agent.memory += " and graphs"
    assert agent.memory == agent.fork().memory == "vectors and graphs"
    assert agent.instruction_files == InstructionFiles.instruction_files


def test_renamed_methods_of_instruction_files_warn(tmp_path):
    agent = InstructionFiles(llm=ScriptedModel(), instruction_dir=tmp_path)
    (tmp_path / "AGENTS.md").write_text("Use tabs.", "utf-8")
    with pytest.warns(DeprecationWarning, match="read_instructions"):
        agent.read_memory()
    with pytest.warns(DeprecationWarning, match="instruction_texts"):
        assert agent.memory_texts == agent.instruction_texts != []


@pytest.mark.parametrize(
    ("module", "recipe"),
    [
        ("mixins.channels", "channels"),
        ("mixins.log", "print_a_run"),
        ("mixins.meter", "cache_monitor"),
        ("mixins.offload", "offload"),
        ("mixins.repetition", "loop_detection"),
        ("models.replay", "record_and_replay"),
    ],
)
def test_the_import_error_of_a_removed_module_names_the_recipe(module, recipe):
    with pytest.raises(ImportError, match=rf"examples/recipes/{recipe}\.py"):
        import_module(f"agentloop.{module}")


@pytest.mark.parametrize(
    ("name", "recipe"),
    [
        ("Channels", "channels"),
        ("Meter", "cache_monitor"),
        ("Offload", "offload"),
        ("Repetition", "loop_detection"),
        ("ReplayModel", "record_and_replay"),
    ],
)
def test_the_import_error_of_a_removed_class_names_the_recipe(name, recipe):
    with pytest.raises(ImportError, match=rf"examples/recipes/{recipe}\.py"):
        getattr(agentloop, name)


def test_the_import_error_of_a_removed_toolkit_names_the_recipe():
    with pytest.raises(ImportError, match=r"agentloop_chat\.web_fetch.*recipes/web_fetch\.py"):
        import_module("agentloop.toolkits.web")


def test_the_warning_names_the_importing_line():
    code = "\nfrom agentloop.mixins.inbox import Inbox, Sent, every"
    program = [sys.executable, "-W", "always", "-c", code]
    done = subprocess.run(program, capture_output=True, text=True, check=True)
    assert "<string>:2: DeprecationWarning: Inbox" in done.stderr


async def test_a_session_of_0_6_0_with_entries_of_renamed_mixins_continues(tmp_path):
    (tmp_path / "s.jsonl").write_text(SESSION, encoding="utf-8")

    class Steered(MessageQueue, Session, Agent): ...

    agent = Steered(llm=ScriptedModel("z"), session="s", session_dir=tmp_path)
    assert [type(record).__name__ for record in agent.log].count("Unknown") == 0
    await agent.run()
    assert [message.text for message in agent.llm.requests[0].messages] == [
        *("x", "Keep it short.", "y", "more")
    ]
    agent.close()
