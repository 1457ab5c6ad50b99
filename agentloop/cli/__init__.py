"""Command-line programs. No other package imports this package."""
