"""One module per promise that the maintainers' guide lists."""
