"""Prose uses nouns and technical terms: bounds on pro-forms and on the length of words.

The bounds are looser than the prose of admired projects (29 to 63 pro-forms and 131 to 197 long
words per 1,000 words), and only show where to look. Text edited until it passes is not good text.
"""

import ast
import io
import re
import tokenize
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PLACES = [
    "README.md",
    "agentloop/README.md",
    "agentloop/MIGRATING.md",
    "agentloop/SESSIONS.md",
    "agentloop/cli/README.md",
    "examples/recipes/README.md",
    "agentloop",
    "agentloop/common",
    "agentloop/models",
    "agentloop/mixins",
    "agentloop/toolkits",
    "agentloop/cli",
    "examples",
    "examples/agentloop_chat",
    "examples/agentloop_chat/README.md",
    "examples/howto/README.md",
    "examples/howto/approvals.md",
    "examples/howto/chatbot.md",
    "examples/howto/coding_agent.md",
    "examples/howto/extraction.md",
    "examples/howto/fleet.md",
    "examples/howto/mcp.md",
    "examples/lessons",
    "examples/lessons/README.md",
    "examples/lessons/TEACHING.md",
    "examples/recipes",
    "tests/benchmarks/README.md",
]
PRO_FORMS = re.compile(
    r"\b(its?|that|those|these|this|what|which|ones?|each|all|such|so|others?|else|then|there|they|"
    r"them)\b",
    re.IGNORECASE,
)
DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)


def prose_of(path):
    """Yield the docstrings and comments of a module, or the text of a page without its code."""
    source = path.read_text(encoding="utf-8")
    if path.suffix == ".md":
        yield re.sub("```.*?```", " ", source, flags=re.DOTALL)
        return
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, DOCUMENTED) and (doc := ast.get_docstring(node)):
            yield doc
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            yield token.string


def frequency(pattern, text):
    words = re.findall(r"[A-Za-z']+", text)
    return 1000 * len(re.findall(pattern, text)) / len(words)


@pytest.mark.parametrize("place", PLACES)
def test_prose_names_things(place):
    path = ROOT / place
    paths = [path] if path.is_file() else sorted(path.rglob("*.py"))
    text = "\n".join(part for file in paths for part in prose_of(file))
    text = re.sub(r"`[^`]*`|\"[^\"\n]*\"|https?://\S+", " ", text)
    assert frequency(PRO_FORMS, text) <= 75
    assert frequency(r"(?i)\bwhat\b", text) <= 5
    assert frequency(r"(?i)\b(is|are|was|has|have) no\b", text) <= 3
    assert frequency("[A-Za-z]{8,}", text) >= 100
