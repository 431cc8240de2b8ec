"""The larger commands of `purra tck`, a file each. `purra_tck.command` puts them together."""

__all__: list[str] = []
