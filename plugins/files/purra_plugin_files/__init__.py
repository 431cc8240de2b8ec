"""Tools on the files under one root: `fs.list`, `fs.read`, `fs.grep`, `fs.write`.

- `places`: paths and the one way to open something under the root
- `walking`: what is in a folder, in one order
- `patterns`, `automaton`: regular expressions and globs that cost linear time
- `text`: lines, encodings, what a result may hold
- `reading`, `searching`, `writing`: the tools themselves, without the SDK
- `plugin`: the only file that knows the SDK
"""

__all__: list[str] = []
