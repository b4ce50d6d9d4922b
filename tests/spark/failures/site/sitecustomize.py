"""Every Python that a driver under test starts, Spark's workers too, knows the points."""

import sys

from harness import points

# Spark would have each worker compile itself from a zip; what is installed is the same, compiled.
sys.path[:] = [path for path in sys.path if not path.endswith("/pyspark.zip")]
points.arm()
