"""A run is a fold over its journal: what happened, what is true, what should be running."""
