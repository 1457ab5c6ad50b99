"""The recipes as modules, for the tests of a recipe."""

import importlib.util
import sys

from tests import ROOT

FOLDER = ROOT / "examples" / "recipes"


def load(name):
    """Return a recipe as a module, as if it were imported."""
    spec = importlib.util.spec_from_file_location(f"recipe_{name}", FOLDER / f"{name}.py")
    module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)  # dataclasses look for their module in sys.modules
    return module
