"""Conformance of the wire formats: the vendors' types, and servers of other projects."""
