"""The public API is tests/api.txt: names, signatures and settings. Other names are internal.

A change of the API is a visible change of that file: `python -m tests.test_api` writes it.
"""

import ast
import importlib
import inspect
from pathlib import Path

import agentloop

SNAPSHOT = Path(__file__).with_name("api.txt")
FUNCTIONS = ast.FunctionDef | ast.AsyncFunctionDef
MODULES = {  # documented in the README's table, in docstrings or in recipes
    "agentloop": agentloop.__all__,
    "agentloop.common.model_info": ["CacheRules"],
    "agentloop.content": ["as_text", "describe_error", "to_content"],
    "agentloop.depends": ["Overrides"],
    "agentloop.events": [
        *("Delta", "Event", "OnDelta", "OverBudgetEvent", "PruneEvent", "SubAgentEvent"),
        *("ToolsChangedEvent", "events_of"),
    ],
    "agentloop.messages": [
        *(
            "Ask",
            "Decision",
            "HistoryChange",
            "InnerCall",
            "InnerResult",
            "JSON",
            "Reset",
            "RunEnd",
        ),
        *("ToolChoice", "Unknown", "UserAnswer", "UserQuestion", "frozen", "text_of"),
    ],
    "agentloop.mixins.approval": ["Approval", "Rule", "plain_arguments"],
    "agentloop.mixins.durable": ["Durable"],
    "agentloop.mixins.hooks": ["Hook", "HookEvent", "Hooks"],
    "agentloop.mixins.message_queue": ["Sent", "Unread"],
    "agentloop.mixins.session": ["SessionInfo"],
    "agentloop.mixins.tracing": ["Tracing"],
    "agentloop.models.http": ["HTTPModel"],
    "agentloop.settings": ["SettingError", "check_settings", "settings_of"],
    "agentloop.toolkits.ask": ["answer_text", "ask_user", "question_text"],
    "agentloop.toolkits.files": ["Workspace"],
    "agentloop.toolkits.mcp": [
        "MCPConfig",
        "MCPError",
        "MCPServer",
        "MCPTools",
        "mcp_servers",
        "mcp_tools",
    ],
    "agentloop.toolkits.recall": ["recall"],
    "agentloop.toolkits.search": ["ToolSearch", "bm25"],
    "agentloop.toolkits.shell": ["Shell"],
    "agentloop.toolkits.skills": ["Skill", "Skills", "discover_skills"],
    "agentloop.toolkits.subagent": ["as_tool", "run_sub_agent"],
    "agentloop.toolkits.todo": ["Todo", "TodoList"],
    "agentloop.toolkits.web": ["web_fetch"],
    "agentloop.tools": ["FunctionTool", "by_name", "find_tool"],
    "agentloop.transcript": ["CallState", "Conversation", "Fold", "Records"],
    "agentloop.waiting": ["cancel_and_wait", "wait_for"],
}


def definition(module: str, name: str) -> list[ast.stmt]:
    """Return the statements that define a name, from the module that it is imported from."""
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
    return found


def is_package(module: str) -> bool:
    return hasattr(importlib.import_module(module), "__path__")


def signature(function: ast.FunctionDef | ast.AsyncFunctionDef) -> str:
    """Return a function's signature, after its decorators that change how it is called."""
    kinds = ("property", "overload", "staticmethod", "classmethod", "asynccontextmanager")
    marks = [f"@{name} " for name in map(ast.unparse, function.decorator_list) if name in kinds]
    prefix = "async def" if isinstance(function, ast.AsyncFunctionDef) else "def"
    returns = f" -> {ast.unparse(function.returns)}" if function.returns else ""
    return f"{''.join(marks)}{prefix} {function.name}({ast.unparse(function.args)}){returns}"


def lines_of(statement: ast.stmt) -> list[str]:
    """Return the lines of a name in the snapshot: of a class, its public fields and methods."""
    if isinstance(statement, FUNCTIONS):
        return [signature(statement)]
    if not isinstance(statement, ast.ClassDef):
        return [ast.unparse(statement)]
    bases = ", ".join(map(ast.unparse, statement.bases))
    lines = [f"class {statement.name}({bases})"]
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
            statements = definition(module, name)
            assert statements, f"{module}.{name}"
            lines += [line for statement in statements for line in lines_of(statement)]
        lines.append("")
    return "\n".join(lines)


def test_the_public_api_is_the_one_in_the_snapshot():
    assert snapshot() == SNAPSHOT.read_text(encoding="utf-8")


def test_every_name_of_the_snapshot_can_be_imported():
    for module, names in MODULES.items():
        for name in names:
            assert hasattr(importlib.import_module(module), name), f"{module}.{name}"


if __name__ == "__main__":
    SNAPSHOT.write_text(snapshot(), encoding="utf-8")
