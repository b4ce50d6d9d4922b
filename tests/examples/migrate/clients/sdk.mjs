// Amazon's SDK for JavaScript against the SQS of a URL, in its usual form: it posts to queue URLs.
import {
  CreateQueueCommand, DeleteMessageBatchCommand, DeleteMessageCommand, QueueDoesNotExist,
  ReceiveMessageCommand, SendMessageBatchCommand, SendMessageCommand, SQSClient,
} from "@aws-sdk/client-sqs";

const credentials = { accessKeyId: "jobs", secretAccessKey: "secret" };
const client = new SQSClient({ endpoint: process.argv[2], region: "eu-west-1", credentials });
const ask = (Command, said) => client.send(new Command(said));

const { QueueUrl } = await ask(CreateQueueCommand, { QueueName: "orders" });
const asked = { QueueUrl, MaxNumberOfMessages: 10, WaitTimeSeconds: 20, MessageAttributeNames: ["All"] };
const waiting = ask(ReceiveMessageCommand, asked);
const MessageAttributes = {
  color: { DataType: "String", StringValue: "röd" },
  picture: { DataType: "Binary", BinaryValue: new Uint8Array([0, 255]) },
};
await ask(SendMessageCommand, { QueueUrl, MessageBody: "ett 🎈", MessageAttributes });
const found = (await waiting).Messages; // The SDK has checked its digests.
const picture = [...found[0].MessageAttributes.picture.BinaryValue];
await ask(DeleteMessageCommand, { QueueUrl, ReceiptHandle: found[0].ReceiptHandle });
const Entries = ["1", "2", "3"].map((Id) => ({ Id, MessageBody: Id }));
const sent = await ask(SendMessageBatchCommand, { QueueUrl, Entries });
const more = [];
while (more.length < 3) more.push(...((await ask(ReceiveMessageCommand, asked)).Messages ?? []));
const gone = await ask(DeleteMessageBatchCommand, {
  QueueUrl, Entries: more.map(({ ReceiptHandle }, n) => ({ Id: `${n}`, ReceiptHandle })),
});
let error = "";
try {
  await ask(SendMessageCommand, { QueueUrl: `${QueueUrl}x`, MessageBody: "x" });
} catch (raised) {
  error = raised instanceof QueueDoesNotExist ? raised.name : `${raised}`;
}
console.log(JSON.stringify({
  first: found[0].Body, picture, sent: sent.Successful.length,
  received: more.map((each) => each.Body).sort(), deleted: gone.Successful.length, error,
}));
