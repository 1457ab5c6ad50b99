"""Common mistakes of users of other libraries: each error names the remedy."""
