"""What is measured, and tests that the measurements work."""
