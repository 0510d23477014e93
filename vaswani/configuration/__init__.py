"""A training's YAML, complete in fairseq's sections; the plugin and user-dirs that it names."""
