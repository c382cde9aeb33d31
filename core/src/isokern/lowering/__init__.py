"""What is done to a graph between its layers and its program: named passes, in a pipeline that is text."""

from .pipeline import DEFAULT, names, register_pass, run
from .rewrite import Rewriter, State

__all__ = ["DEFAULT", "Rewriter", "State", "names", "register_pass", "run"]
