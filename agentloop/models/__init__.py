"""Chat models: the models of providers, scripted models, and fallback between models."""

__path__.append(f"{__path__[0]}/deprecated")  # old module names, until 1.1
