"""The store `sqlite/journal`: logs, documents and blobs of a kernel in one SQLite file.

- `statements`: the tables, and all SQL
- `schema`: the file's format, checked before it is opened for writing
- `database`: one connection: transactions, patience, durability, errors
- `requests`: whether a call is a call; `text`: values as JSON text
- `commit`: the rules; `ledger`: the rows of one transaction; `projecting`: the operator's functions
- `reads`, `blobs`, `watching`: the other operations
- `engine`: all of them on one file
- `plugin`: the only file that knows the SDK
"""

__all__: list[str] = []
