"""Isokern's conformance suite, a test for each case; pyproject.toml says on which device, and which cases."""

from isokern.conformance.test_conformance import test_case

__all__ = ["test_case"]
