"""The demonstration, ``arbora demo``."""
