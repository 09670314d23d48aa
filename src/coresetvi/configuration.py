"""Configuration objects to JSON and back: what a model, a construction or a plug-in of one's own needs.

`register` lets saved fits name a class, `encode` makes JSON of an object, and `decode` the object again. A
file can name registered classes only, so reading one runs no other code.
"""

from ._registry import decode, encode, register

__all__ = ["decode", "encode", "register"]
