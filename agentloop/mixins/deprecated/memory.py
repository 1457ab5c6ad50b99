"""Deprecated: `Memory` is `InstructionFiles`, in agentloop.mixins.instruction_files."""

from warnings import warn

from agentloop.mixins.instruction_files import *  # noqa: F403
from agentloop.mixins.instruction_files import InstructionFiles

Memory = InstructionFiles
warn(
    "Memory is deprecated and will be removed in 1.1: "
    "import InstructionFiles from agentloop.mixins.instruction_files",
    DeprecationWarning,
    stacklevel=2,
)
