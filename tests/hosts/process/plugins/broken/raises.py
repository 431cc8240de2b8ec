"""Fails at import."""

import missing_dependency_of_this_plugin  # noqa: F401
