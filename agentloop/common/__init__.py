"""Modules shared by mixins/, models/, toolkits/ or cli/, but not required by the core."""
