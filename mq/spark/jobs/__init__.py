"""Jobs of the pipeline: what is done with messages in bulk, each a plain function of a session.

`mq.spark` has the functions; `mqctl pipeline` and spark-submit run them (mq.spark.commands).
"""
