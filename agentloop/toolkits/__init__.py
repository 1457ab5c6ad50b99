"""Agent capabilities: one kind of tool per file."""

__path__.append(f"{__path__[0]}/deprecated")  # old module names, until 1.1
