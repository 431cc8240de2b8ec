"""Puts a kernel together from a host manifest, and is the command line. The composition root."""
