"""The recipes in examples/recipes; long recipes have a module of their own."""
