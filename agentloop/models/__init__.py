"""Who answers: the models of providers, scripted ones, and one that falls back on others."""
