"""Fails at import."""

import missing_dependency_of_this_plugin  # type: ignore[import-not-found]  # noqa: F401
