"""What "always" allows in the chat: a program with plain arguments, or this very command."""

import pytest

from agentloop import Agent
from agentloop.cli.always import always_for
from agentloop.mixins.approval import Approval
from agentloop.models.scripted import call

from ..mixins import acting, bash


class Asking(Approval, Agent): ...


@pytest.mark.parametrize(
    ("command", "offered"),
    [
        ("touch a.txt", "touch *"),
        ("git log --oneline", "git *"),
        ("./configure --prefix=/usr", "./configure *"),
        ("ls", "this command"),
        ("rm *.pyc", "this command"),
        ("rm ?.pyc", "this command"),
        ("rm [ab].pyc", "this command"),
        ("echo ran >> ledger", "this command"),
        ("A=1 make test", "this command"),
        ("bash -c ls", "this command"),
        ("sh run.sh", "this command"),
        ("/bin/sh run.sh", "this command"),
        ("BASH.EXE run.sh", "this command"),
        ("b''ash run.sh", "this command"),
        ("env make", "this command"),
        ("sudo make", "this command"),
        ("python run.py", "this command"),
        ("python3 run.py", "this command"),
        ("python3.11 run.py", "this command"),
        ("node run.js", "this command"),
        ("xargs rm", "this command"),
        ("time make", "this command"),
        ("nice make", "this command"),
        ("command make", "this command"),
        ("eval make", "this command"),
        (". ./run", "this command"),
        ("timeout 5 make", "this command"),
        ("find . -delete", "this command"),
        ("ssh host ls", "this command"),
        ("docker run x", "this command"),
    ],
)
async def test_always_offers_a_prefix_for_programs_that_run_no_other(command, offered):
    always = always_for(bash(command))
    assert always.said == offered
    agent, ran = acting(bash(command), bash(f"{command} x"), "ok", kind=Asking)
    agent.allow_always("bash", always.arguments)
    await agent.run("go")
    assert ran[0] == command
    assert (f"{command} x" in ran) == (offered != "this command")


@pytest.mark.parametrize("other", ["rm -rf folder x.pyc", "rm a.pyc", "rm *.pyc "])
async def test_a_command_with_a_star_is_allowed_as_exactly_that_text(other):
    always = always_for(bash("rm *.pyc"))
    agent, ran = acting(bash("rm *.pyc"), bash(other), kind=Asking)
    agent.allow_always("bash", always.arguments)
    assert (await agent.run("go")).stop_reason == "needs_approval"
    assert ran == ["rm *.pyc"]


def test_always_is_for_each_edit_and_for_each_call_of_another_tool():
    assert always_for(call("write", path="a", text="b")).tools == ("write", "edit", "multi_edit")
    always = always_for(call("pay", amount=5))
    assert (always.said, always.tools, always.arguments) == ("each pay", ["pay"], None)
