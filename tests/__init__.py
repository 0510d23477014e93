"""Four tiers: unit (is the part right?), parity (is it the same as a formula or a reference?),
integration (do the commands connect?), system (does it learn?)."""
