"""The kernel's end of the bridge: a hosted adapter as one of the kernel's ports.

`channel` is what a host offers, `payloads` how contract values are spelled on the wire, `faults`
how failures on the wire become errors; `model`, `tool`, `context`, `policy` and `store` are a port
each. What a plugin's answer must look like stands with the contracts (`purra.contracts.answers`),
because it holds for objects in the kernel's process too.
"""
