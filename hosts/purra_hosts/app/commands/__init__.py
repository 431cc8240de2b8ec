"""The commands, a file each. They parse, call, print; what they do is elsewhere."""
