"""Isokern: an operator library whose backends are plug-ins."""
