"""`python -m purra_hosts.app`: the command `purra`, where its script is not on the path."""

from __future__ import annotations

from purra_hosts.app.main import main

if __name__ == "__main__":
    main()
