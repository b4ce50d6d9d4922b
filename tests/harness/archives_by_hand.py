"""An archive whose rows a test says."""

from pathlib import Path

from pyspark.sql import DataFrame

from mq.spark.jobs.archive_folder import ArchiveFolder, Mark, open_archive
from mq.store.disk.files import Files
from mq.store.disk.flush import NoFlusher


def write_archive(folder: Path, rows: DataFrame) -> None:
    """Makes the archive in a folder that is not there; the rows are as ARCHIVE has them."""
    root = str(folder.parent / "root")
    made = ArchiveFolder.of(str(folder), Files())
    open_archive(made, root, Mark("a-root"), NoFlusher(), is_known=False)
    rows.coalesce(1).write.mode("append").partitionBy("queue", "day").parquet(str(folder))
