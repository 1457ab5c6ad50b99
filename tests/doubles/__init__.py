"""Servers on the loopback that stand in for providers."""
