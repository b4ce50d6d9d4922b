"""One listing in a process of its own, for `spark_read --names`: its figures as JSON."""

import json
import sys

from deploy.bench.spark_read import plan

print(json.dumps(plan(sys.argv[1])))
