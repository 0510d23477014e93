"""The verbs, one file each: a dataclass ``Options`` and ``run(options)``; nothing else is here."""
