"""Running graphs: a plan of their memory, and the program that a device runs."""

from .plan import Plan, plan
from .program import Program, compile

__all__ = ["Plan", "Program", "compile", "plan"]
