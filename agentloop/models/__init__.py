"""Chat models: the models of providers, scripted models, and fallback between models."""
