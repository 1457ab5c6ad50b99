"""One module per toolkit."""
