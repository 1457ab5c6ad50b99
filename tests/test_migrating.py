"""agentloop/MIGRATING.md: every documented name of 0.6.0 exists, is deprecated, or has a row."""

import importlib
import re
import warnings
from pathlib import Path

import agentloop

HERE = Path(__file__).parent
NAMES = (HERE / "data" / "names_v06.txt").read_text(encoding="utf-8").splitlines()[1:]
PAGE = (Path(agentloop.__file__).parent / "MIGRATING.md").read_text(encoding="utf-8")
ROWS = re.findall(r"^\| (.*`.*) \| (.*) \|$", PAGE, re.MULTILINE)


def exists(path: str) -> bool:
    """Return whether 1.0 has a name of 0.6.0, possibly with a DeprecationWarning."""
    parts = path.split(".")
    for end in range(len(parts), 0, -1):
        try:
            value = importlib.import_module(".".join(parts[:end]))
            break
        except ModuleNotFoundError:
            continue
        except ImportError:  # a module that became a recipe
            return False
    for name in parts[end:]:
        if isinstance(value, type) and name in fields_of(value):
            return True
        try:
            value = getattr(value, name)
        except (AttributeError, ImportError):
            return False
    return True


def fields_of(cls: type) -> set[str]:
    """Return the fields and settings of a class without a default, and its renamed settings."""
    names = set[str]()
    for base in cls.__mro__:
        names |= {*vars(base).get("__annotations__", {}), *vars(base).get("renamed_settings", {})}
    return names


def is_listed(path: str) -> bool:
    """Return whether a row contains the name, its module, or its class."""
    listed = {
        name.split("(")[0].rstrip("=") for row in ROWS for name in re.findall("`(.*?)`", row[0])
    }
    parts = path.removeprefix("agentloop.").split(".")
    spellings = {".".join(parts[start:end]) for start in range(4) for end in range(5)}
    if parts[0] == "Agent":
        spellings.add(f"agent.{parts[-1]}")
    return bool(spellings & listed)


def test_each_name_of_0_6_0_works_is_deprecated_or_has_a_row():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        gone = [path for path in NAMES if not exists(path)]
    assert [path for path in gone if not is_listed(path)] == []
    assert 40 < len(gone) < len(NAMES) / 4  # the names were looked up


def test_each_recipe_and_each_successor_of_the_table_exists():
    for _, new in ROWS:
        for recipe in re.findall(r"recipe `(\w+\.py)`", new):
            assert (HERE.parent / "examples" / "recipes" / recipe).exists(), recipe
        for name in re.findall(r"`([A-Z]\w+|\w+)(?:\(.*?\))?`", new):
            assert name in SOURCES, name
        for module, name in re.findall(r"`(content|errors|run|transcript|waiting)\.(\w+)`", new):
            assert hasattr(importlib.import_module(f"agentloop.{module}"), name), name


SOURCES = "\n".join(
    path.read_text(encoding="utf-8")
    for folder in ("agentloop", "examples/recipes")
    for path in (HERE.parent / folder).rglob("*.py")
)
