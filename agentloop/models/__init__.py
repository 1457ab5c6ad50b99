"""Who answers: one file for each provider."""
