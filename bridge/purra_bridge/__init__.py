"""The wire between kernel and plugins (`wire`) and its kernel end (`ports`)."""
