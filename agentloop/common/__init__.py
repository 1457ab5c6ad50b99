"""Code shared by files of mixins/, models/, toolkits/ or cli/, and not needed by the core."""
