"""Settings that change: for one run, or from now on in a session that brings its settings.

Use `settings` for conversations with phases, for example first read, then write: other tools, fewer
turns, a smaller model. A fork would leave the conversation. The settings are checked like those of
a new agent, and return to their old values at the end of the block, however the run ends.

Use `resume` if the program that continues a session shouldn't have to know how it was started. A
session saves records, not settings: models, tools and functions are code. So this recipe saves a
*name* for them in the log. `resume("monday")` looks up the template of the session, and
`resume("monday", model="strong")` changes one setting from now on, also after the next restart.
"""

import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import field
from pathlib import Path
from typing import Any, cast

from agentloop import (
    Agent,
    Loop,
    Mark,
    Record,
    ScriptedModel,
    Session,
    call,
    read_log,
    session_path,
    tool,
)
from agentloop.messages import frozen
from agentloop.settings import check_settings, settings_of
from agentloop.tools import by_name
from agentloop.transcript import Reset


@contextmanager
def settings(agent: Loop, **temporary: Any) -> Iterator[None]:
    """Apply settings until the block ends. Invalid settings raise the errors of a new agent.

    Settings that only the construction of an agent reads, such as `session` and `memory`, are not
    applied.
    """
    agent.refuse_if_busy()
    cls = type(agent)
    usual = settings_of(agent)
    checked = check_settings(cls, usual | temporary)
    by_name(cast(Iterable[object], checked["tools"]))
    try:
        for name in temporary:
            setattr(agent, name, checked[name])
        yield
    finally:
        for name in temporary:
            setattr(agent, name, usual[name])


@tool("The state of an order", read_only=True)
def order(number: int) -> str:
    return f"order {number}: shipped"


@tool("Cancel an order")
def cancel(number: int) -> str:
    return f"order {number}: cancelled"


def answer(messages: Any, tools: Any) -> Any:
    """Simulate a model: look at order 7, or cancel it, and repeat the result."""
    names = {"Where is order 7?": "order", "Cancel order 7.": "cancel"}
    name = names.get(messages[-1].text)
    return call(name, number=7) if name else messages[-1].text


MODELS = {"fast": ScriptedModel(answer), "strong": ScriptedModel(answer)}
TEMPLATES: dict[str, dict[str, Any]] = {
    "support": {
        "model": "fast",
        "tools": [order, cancel],
        "system_prompt": "You answer customers.",
    },
    "editor": {"model": "strong", "system_prompt": "You correct texts."},
}


@frozen
class UsesTemplate(Mark):
    """From here on, the session uses a template, apart from some settings (JSON values)."""

    name: str
    changes: dict[str, Any] = field(default_factory=dict[str, Any], hash=False)


class Desk(Session, Agent):
    """Repeats the name of its template at the start of each history."""

    template: UsesTemplate = UsesTemplate("support")

    def record(self, record: Record) -> None:
        super().record(record)
        if isinstance(record, Reset):
            super().record(self.template)


def resume(session: str, folder: Path, template: str = "", **changes: Any) -> Desk:
    """Continue a session with its own settings, except those that you pass.

    template: the template of a new session, or another one from now on.
    """
    path = session_path(session, folder)
    log = read_log(path) if path.exists() else []
    saved = next((each for each in reversed(log) if isinstance(each, UsesTemplate)), None)
    if template:
        used = UsesTemplate(template, changes)
    elif saved:
        used = UsesTemplate(saved.name, {**saved.changes, **changes})
    else:
        raise ValueError(f"{session!r} has no template yet: pass template=, one of {[*TEMPLATES]}")
    settings = {**TEMPLATES[used.name], **used.changes}
    llm = MODELS[settings.pop("model")]
    agent = Desk(llm=llm, session=session, session_dir=folder, template=used, **settings)
    if not saved or (used.name, used.changes) != (saved.name, saved.changes):
        agent.record(used)
    return agent


def main() -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        with resume("monday", folder, template="support") as agent:
            print(agent.run_sync("Where is order 7?").text)
        with resume("monday", folder, model="strong") as agent:  # from now on
            with settings(agent, tools=[order], max_iterations=5):  # only look
                print(agent.run_sync("Cancel order 7.").text)
            print(agent.run_sync("Cancel order 7.").text)
        with resume("monday", folder) as agent:
            print(agent.system_prompt, agent.llm is MODELS["strong"])


if __name__ == "__main__":
    main()
