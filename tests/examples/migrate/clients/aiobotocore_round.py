"""aiobotocore against the SQS of a URL."""

import asyncio
import json
import sys

from aiobotocore.session import get_session


async def play(url: str) -> None:
    keys = {"aws_access_key_id": "jobs", "aws_secret_access_key": "secret"}
    async with get_session().create_client(
        "sqs", endpoint_url=url, region_name="eu-west-1", **keys
    ) as client:
        queue = (await client.create_queue(QueueName="orders"))["QueueUrl"]
        asked = {"QueueUrl": queue, "WaitTimeSeconds": 20, "MaxNumberOfMessages": 10}
        waiting = asyncio.create_task(client.receive_message(**asked))
        color = {"color": {"DataType": "String", "StringValue": "red"}}
        await client.send_message(QueueUrl=queue, MessageBody="one", MessageAttributes=color)
        (one,) = (await waiting)["Messages"]
        entries = [{"Id": str(n), "MessageBody": str(n)} for n in range(10)]
        sent = await client.send_message_batch(QueueUrl=queue, Entries=entries)
        found = [one]
        while len(found) < 11:
            found += (await client.receive_message(**asked)).get("Messages", [])
        handles = [{"Id": str(n), "ReceiptHandle": e["ReceiptHandle"]} for n, e in enumerate(found)]
        gone = await client.delete_message_batch(QueueUrl=queue, Entries=handles[1:])
        await client.delete_message(QueueUrl=queue, ReceiptHandle=one["ReceiptHandle"])
        wanted = {"FifoQueue": "true", "ContentBasedDeduplication": "true"}
        fifo = (await client.create_queue(QueueName="jobs.fifo", Attributes=wanted))["QueueUrl"]
        for body in ("a", "b", "a"):
            await client.send_message(QueueUrl=fifo, MessageBody=body, MessageGroupId="g")
        order = []
        while len(order) < 2:
            answer = await client.receive_message(QueueUrl=fifo, WaitTimeSeconds=5)
            for each in answer.get("Messages", []):
                order.append(each["Body"])
                handle = each["ReceiptHandle"]
                await client.delete_message(QueueUrl=fifo, ReceiptHandle=handle)
        left = await client.get_queue_attributes(QueueUrl=queue, AttributeNames=["All"])
        said = {
            "sent": len(sent["Successful"]),
            "received": sorted(each["Body"] for each in found),
            "deleted": len(gone["Successful"]),
            "order": order,
            "left": left["Attributes"]["ApproximateNumberOfMessages"],
        }
        print(json.dumps(said))


asyncio.run(play(sys.argv[1]))
