"""A Java for Spark."""


def ensure_java() -> None:
    """Makes sure that Spark finds a Java."""
