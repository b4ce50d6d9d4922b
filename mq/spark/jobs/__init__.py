"""Jobs of the pipeline: bulk work on messages. Each job is a plain function that takes a session.

`mq.spark` exports the functions; `mqctl pipeline` and spark-submit run them (mq.spark.commands).
"""
