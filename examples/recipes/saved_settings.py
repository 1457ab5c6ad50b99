"""A session that brings its settings: a template by name, and what differs from it.

Use this if the program that continues a session shouldn't have to know how it was started. A
session saves records, not settings: models, tools and functions are code. So this recipe saves a
*name* for them in the log. `resume("monday")` looks up the template of the session, and
`resume("monday", model="strong")` changes one setting from now on, also after the next restart.
"""

import tempfile
from dataclasses import field
from pathlib import Path
from typing import Any

from agentloop import (
    Agent,
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
from agentloop.transcript import Reset


@tool("The state of an order")
def order(number: int) -> str:
    return f"order {number}: shipped"


def answer(messages: Any, tools: Any) -> Any:
    return call("order", number=7) if messages[-1].text.endswith("7?") else messages[-1].text


MODELS = {"fast": ScriptedModel(answer), "strong": ScriptedModel(answer)}
TEMPLATES: dict[str, dict[str, Any]] = {
    "support": {"model": "fast", "tools": [order], "system_prompt": "You answer customers."},
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
            print(agent.system_prompt, agent.llm is MODELS["strong"])
        with resume("monday", folder) as agent:
            print(agent.system_prompt, agent.llm is MODELS["strong"])


if __name__ == "__main__":
    main()
