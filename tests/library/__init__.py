"""The rest of the package: mixins, models, toolkits, common modules, promises, the public API."""
