"""Optional features of the loop, one per file."""
