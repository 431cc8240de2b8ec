"""The shell of a run: it appends what happened, publishes it, and performs what `decide` asks
for."""
