"""The public API is tests/api.txt: names, signatures and settings. Other names are internal.

The programs in examples/ import public names only, which shows that the public API suffices.

A change of the API is a visible change of that file: `python -m tests.library.test_api` writes it.
"""

import ast
import contextlib
import importlib
import inspect
import re
import textwrap
from pathlib import Path

import pytest

import agentloop
from agentloop.common.found_tools import FoundTool
from agentloop.common.records import ENTRIES
from agentloop.messages import TAGS
from agentloop.transcript import Mark
from tests import ROOT

SNAPSHOT = ROOT / "tests" / "api.txt"
FUNCTIONS = ast.FunctionDef | ast.AsyncFunctionDef
MODULES = {  # documented in the README's table, in docstrings or in recipes
    "agentloop": agentloop.__all__,
    "agentloop.arguments": ["parse_arguments"],
    "agentloop.common.request_size": ["MeasuresRequests"],
    "agentloop.common.model_info": ["CacheRules"],
    "agentloop.common.prices": ["Priced"],
    "agentloop.common.review": ["Ask", "Decision"],
    "agentloop.common.subagents": ["SubAgentCall", "SubAgentRecord"],
    "agentloop.common.tokens": [],  # exported by agentloop
    "agentloop.content": ["as_text", "clip", "describe_error", "to_content"],
    "agentloop.depends": ["Overrides"],
    "agentloop.errors": [],
    "agentloop.events": [
        *("Delta", "Event", "OnDelta", "OverBudgetEvent", "PruneEvent", "SubAgentEvent"),
        *("ToolsChangedEvent", "events_of"),
    ],
    "agentloop.loop": [],
    "agentloop.messages": [
        *("Attempt", "Citation", "Content", "Extra", "JSON", "Prompt", "ToolChoice", "Unknown"),
        *("clean_text", "frozen", "text_of"),
    ],
    "agentloop.mixins.approval": [
        *("AlwaysAllow", "Approval", "PlanApproved", "Rule", "plain_arguments"),
    ],
    "agentloop.mixins.cost": ["Bill"],
    "agentloop.common.windows": ["UNKNOWN_WINDOW"],
    "agentloop.mixins.context_budget": ["ContextBudget"],
    "agentloop.mixins.cost_aware_pruning": ["CostAwarePruning"],
    "agentloop.mixins.structured_output": ["StructuredOutput"],
    "agentloop.mixins.durable": ["Durable"],
    "agentloop.mixins.hooks": ["Hook", "HookEvent", "Hooks", "fires_for"],
    "agentloop.mixins.message_queue": ["Sent", "Unread"],
    "agentloop.mixins.session": ["SessionInfo"],
    "agentloop.mixins.tracing": ["Tracing"],
    "agentloop.models.http": ["HTTPModel"],
    "agentloop.models.scripted": [],
    "agentloop.settings": ["Settings", "SettingError", "check_settings", "settings_of"],
    "agentloop.run": ["EventStream"],
    "agentloop.toolkits.ask": [
        *("UserAnswer", "UserQuestion", "answer_text", "ask_user", "question_text"),
    ],
    "agentloop.toolkits.environment": ["Secrets", "StrictConfig", "fill_in", "mask"],
    "agentloop.toolkits.files": ["SKIPPED", "Workspace"],
    "agentloop.toolkits.mcp": [
        *("MCPConfig", "MCPError", "MCPServer", "MCPTool", "MCPTools"),
        *("as_part", "mcp_servers", "mcp_tools"),
    ],
    "agentloop.toolkits.recall": ["hidden_texts", "recall"],
    "agentloop.toolkits.search": ["ToolSearch", "bm25"],
    "agentloop.toolkits.shell": ["MAX_TIMEOUT", "Shell", "as_displayed"],
    "agentloop.toolkits.skills": ["Skill", "Skills", "discover_skills", "read_folder"],
    "agentloop.toolkits.subagent": ["SubAgents", "as_tool", "run_sub_agent"],
    "agentloop.toolkits.todo": ["Todo", "TodoList"],
    "agentloop.tools": ["FunctionTool", "NO_OVERRIDES", "by_name", "find_tool"],
    "agentloop.model": [],
    "agentloop.common.nested": ["InnerCall", "InnerResult"],
    "agentloop.transcript": [
        *("Awaits", "CallEntry", "CallState", "Conversation", "Fold", "Log", "Records"),
        *("Reset", "RunEnd", "is_complete", "with_unique_ids"),
    ],
    "agentloop.waiting": ["call_function", "cancel_and_wait", "wait_for"],
}


def definition(module: str, name: str) -> tuple[str, list[ast.stmt]]:
    """Return the module that defines a name, and the statements that define it."""
    tree = ast.parse(Path(inspect.getsourcefile(importlib.import_module(module))).read_bytes())
    statements = [*tree.body]
    for statement in tree.body:
        if isinstance(statement, ast.If):  # TYPE_CHECKING
            statements += statement.body
    found = []
    for statement in statements:
        if isinstance(statement, ast.ImportFrom) and name in [a.name for a in statement.names]:
            package = module if is_package(module) else module.rpartition(".")[0]
            for _ in range(statement.level - 1):
                package = package.rpartition(".")[0]
            return definition(
                f"{package}.{statement.module}" if statement.level else statement.module, name
            )
        if isinstance(statement, FUNCTIONS | ast.ClassDef) and statement.name == name:
            found.append(statement)
        elif isinstance(statement, ast.Assign | ast.AnnAssign):
            targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
            if name in map(ast.unparse, targets):
                found.append(statement)
    return module, found


def is_package(module: str) -> bool:
    return hasattr(importlib.import_module(module), "__path__")


def signature(function: ast.FunctionDef | ast.AsyncFunctionDef) -> str:
    """Return the signature of a function, with decorators that change how to call it."""
    kinds = ("property", "overload", "staticmethod", "classmethod", "asynccontextmanager")
    marks = [f"@{name} " for name in map(ast.unparse, function.decorator_list) if name in kinds]
    prefix = "async def" if isinstance(function, ast.AsyncFunctionDef) else "def"
    returns = f" -> {ast.unparse(function.returns)}" if function.returns else ""
    return f"{''.join(marks)}{prefix} {function.name}({ast.unparse(function.args)}){returns}"


def lines_of(statement: ast.stmt, module: str) -> list[str]:
    """Return the snapshot lines of a name; for a class, also public fields and methods."""
    if isinstance(statement, FUNCTIONS):
        return [signature(statement)]
    if not isinstance(statement, ast.ClassDef):
        return [ast.unparse(statement)]
    bases = [*map(ast.unparse, statement.bases)]
    lines = [f"class {statement.name}({', '.join(bases)})"]
    for base in bases:
        if base.startswith("_"):  # a private base class: its members are the class's own
            owner, [found] = definition(module, base)
            lines += lines_of(found, owner)[1:]
    for member in statement.body:
        if isinstance(member, FUNCTIONS) and is_public(member.name):
            lines.append(f"    {signature(member)}")
        elif isinstance(member, ast.AnnAssign) and is_public(ast.unparse(member.target)):
            lines.append(f"    {ast.unparse(member)}")
    return lines


def is_public(name: str) -> bool:
    return not name.startswith("_") or name == "__init__"


def snapshot() -> str:
    """Return the public API as text."""
    lines = []
    for module, names in MODULES.items():
        lines.append(f"# {module}")
        for name in names:
            owner, statements = definition(module, name)
            assert statements, f"{module}.{name}"
            for statement in statements:
                lines += lines_of(statement, owner)
        lines.append("")
    return "\n".join(lines)


def test_the_public_api_matches_the_snapshot():
    assert snapshot() == SNAPSHOT.read_text(encoding="utf-8")


def test_every_name_of_the_snapshot_can_be_imported():
    for module, names in MODULES.items():
        for name in names:
            assert hasattr(importlib.import_module(module), name), f"{module}.{name}"


# ---- the programs in examples/

EXAMPLES = sorted(
    path
    for path in (ROOT / "examples").rglob("*.py")
    if not path.name.startswith("make_")  # the generators of the notebook and of pages
)
PAGES = [ROOT / "README.md", *sorted((ROOT / "examples").rglob("*.md"))]


def is_listed(module: str, name: str) -> bool:
    """Return whether a name is public in a module: listed above, or exported by agentloop."""
    value = getattr(importlib.import_module(module), name)
    exported = name in agentloop.__all__ and value is getattr(agentloop, name)
    return name in MODULES.get(module, []) or (module in MODULES and exported)


def private_imports(code: str, is_chat: bool = False) -> list[str]:
    """Return the internal names that a program imports from agentloop."""
    found = []
    tree = ast.parse(code)
    modules = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            imported = [alias.name for alias in node.names if alias.name.startswith("agentloop.")]
            found += [name for name in imported if name not in MODULES]
        elif isinstance(node, ast.ImportFrom) and not node.level:
            # the command `agentloop` and its program share the output to the terminal
            shared = ["agentloop.cli.terminal", "agentloop.cli.main"] if is_chat else []
            module = node.module or ""
            if module.split(".")[0] != "agentloop" or module in shared:
                continue
            for alias in node.names:
                if f"{module}.{alias.name}" in MODULES:
                    modules[alias.asname or alias.name] = f"{module}.{alias.name}"
                elif alias.name != "*" and not is_listed(module, alias.name):
                    found.append(f"{module}.{alias.name}")
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and ast.unparse(node.value) in modules:
            module = modules[ast.unparse(node.value)]
            if not is_listed(module, node.attr):
                found.append(f"{module}.{node.attr}")
    return found


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_every_example_imports_public_names_only(path):
    is_chat = path.parent.name == "agentloop_chat"
    assert private_imports(path.read_text(encoding="utf-8"), is_chat) == []


@pytest.mark.parametrize("path", PAGES, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_every_page_imports_public_names_only(path):
    for code in re.findall(r"(?s)```python[^\n]*\n(.*?)```", path.read_text(encoding="utf-8")):
        with contextlib.suppress(SyntaxError):  # a part of a program
            assert private_imports(textwrap.dedent(code)) == []


def test_the_check_of_imports_finds_internal_names():
    code = """
        import agentloop.waiting_room
        from agentloop import events, messages as m
        from agentloop.tools import names_of_file
        events.TextEvent, m.Unknown, m.TAGS
    """
    assert private_imports(textwrap.dedent(code)) == [
        "agentloop.waiting_room",
        "agentloop.tools.names_of_file",
        "agentloop.messages.TAGS",
    ]


def test_the_entries_that_a_reader_looks_up_are_those_that_the_package_defines():
    for path in Path(agentloop.__file__).parent.glob("*/*.py"):
        if path.parent.name in ("common", "mixins", "toolkits"):
            importlib.import_module(f"agentloop.{path.parent.name}.{path.stem}")
    defined = {
        (cls.__module__.removeprefix("agentloop."), tag)
        for tag, cls in TAGS.items()
        if issubclass(cls, Mark | FoundTool) and re.match(r"agentloop\.\w+\.", cls.__module__)
    }
    assert defined == {(module, tag) for module, tags in ENTRIES.items() for tag in tags.split()}


if __name__ == "__main__":
    SNAPSHOT.write_text(snapshot(), encoding="utf-8")
