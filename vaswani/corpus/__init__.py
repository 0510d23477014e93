"""Training texts: the demo's generated phrases, and the public corpora of the recipes."""
