"""Why a picture is missing: what would have told it, and what there is."""

from mq.spark.jobs.report.queues import Queue


def not_known(queue: Queue, teller: str) -> str:
    """That a figure is not known, who could tell it, and which sources the queue has."""
    if not queue.sources:
        return f"Not known: no source tells of this queue; {teller} would."
    return f"Not known: {teller} would tell; this is from {named(queue.sources)}."


def named(sources: tuple[str, ...]) -> str:
    """Sources in words: "inodes", "archive and history"."""
    words = {"archive": "the archive", "inodes": "inodes", "history": "history files"}
    said = [words.get(source, source) for source in sources]
    return " and ".join((", ".join(said[:-1]), said[-1]) if len(said) > 1 else said)


FETCHES = "history files of that time, in the root or the archive,"
REMOVALS = "an archive or history files of that time"
SIZES = "inodes, an archive or history files"
