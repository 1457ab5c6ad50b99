"""What others say about the wires: the vendors' types, and servers by third parties."""
