"""For every Python that a Spark under test starts, by PYTHONPATH: its drivers and workers import
Spark compiled, and know the points.
"""

import os
import sys

# Spark would have each worker compile itself from zips, for half a second; what is installed is
# the same, compiled. tests/spark/test_sessions.py leaves them in the path.
ZIPPED = ("/pyspark.zip", "-src.zip")
sys.path[:] = [path for path in sys.path if not path.endswith(ZIPPED)]
if "MQ_POINTS" in os.environ:
    from harness import points

    points.arm()
