"""The tests of the package, run on a bundle: see plugin.py."""
