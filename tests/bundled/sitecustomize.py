"""Replaces package modules with a bundle in every Python process with this folder on its path.

AGENTLOOP_BUNDLE is the path of the bundle. Modules included in the bundle resolve to the bundle;
modules missing from the bundle (the command, and models required only by tests) are loaded from
the package and import from the bundle.
"""

import os
import re
import sys
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path


def parts_of(path):
    """Return the names of the package modules included in a bundle."""
    parts = re.findall(r"^#   (\S+)\.py: ", Path(path).read_text(encoding="utf-8"), re.M)
    return {f"agentloop.{part.replace('/', '.')}" for part in parts}


class Bundled(MetaPathFinder, Loader):
    def __init__(self, path):
        self.path, self.module = path, None
        self.names = parts_of(path)

    def find_spec(self, name, path=None, target=None):
        return ModuleSpec(name, self) if name in self.names else None

    def create_module(self, spec):
        if self.module is None:
            own = spec_from_file_location("bundled_agent", self.path)
            self.module = sys.modules["bundled_agent"] = module_from_spec(own)
            own.loader.exec_module(self.module)
        return self.module

    def exec_module(self, module):
        pass


if path := os.environ.get("AGENTLOOP_BUNDLE"):
    sys.meta_path.insert(0, Bundled(path))
