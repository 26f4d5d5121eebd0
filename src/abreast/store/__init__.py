"""Statements and the reading of their rows. Nothing here executes or commits."""
