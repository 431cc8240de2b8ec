"""Plugins that do exactly what a check says, byte by byte.

`puppet.py` runs as the plugin (`python -I -S`, nothing of ours in it); `stage` makes its folder and
holds the other end; `frames` makes and reads frames, on its own and not with the code of a host.
"""

__all__: list[str] = []
