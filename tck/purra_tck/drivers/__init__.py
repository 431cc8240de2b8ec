"""How the kit holds a host: one protocol (`purra_tck.drivers.host`), a driver for each kind."""

__all__: list[str] = []
