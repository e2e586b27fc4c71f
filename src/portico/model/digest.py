"""BLAKE2b without importing `hashlib`, which takes a millisecond."""

try:
    from _blake2 import blake2b
except ImportError:  # the module is private: another Python may keep it elsewhere
    from hashlib import blake2b

__all__ = ["blake2b"]
