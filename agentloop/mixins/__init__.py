"""How the loop behaves: one optional feature a file."""
