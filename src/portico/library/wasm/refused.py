"""The answer of a function of the host that refuses."""


class Refused(Exception):
    """A function of the host refuses; the guest gets the text as its error."""
