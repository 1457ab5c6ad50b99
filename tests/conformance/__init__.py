"""What others say about the wires: the vendors' types and clients, and servers by third parties."""
