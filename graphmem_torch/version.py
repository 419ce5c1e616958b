"""The version, apart from the facade so that every floor may name it."""

__all__ = ["__version__"]

__version__ = "0.1.0"
