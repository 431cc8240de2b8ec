"""Writes to stdout by every road while it is imported, and is fine otherwise."""

import os
import sys

from purra_sdk import Plugin

print("hi")
os.write(1, b"raw\n")
sys.stderr.write("careful\n")
plugin = Plugin()
